"""Load a run, and plot the output weight a over the input weight w, with areas proportional to the particle weights."""

from matplotlib.figure import Figure

import proxlearn as pl

folder = pl.train("dataset=sine", "N=200", "steps=500", verbose=False).folder
run = pl.load_run(folder)
figure = Figure(figsize=(5, 4))
axes = figure.subplots()
axes.scatter(run.cloud.theta[:, 2], run.cloud.theta[:, 0], s=4000 * run.cloud.rho / run.cloud.rho.sum(), alpha=0.5)
axes.set(xlabel="w", ylabel="a", title=f"step {run.cloud.step}, one of {len(run.clouds)} stored clouds")
figure.savefig("cloud.png")
print(run, "test risk:", run.metrics["test_risk_weighted"].iloc[-1])
