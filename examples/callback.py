"""Record the Wasserstein length of each step with a callback, which stops the run when the path is long enough."""

from scipy.optimize import linear_sum_assignment
from scipy.spatial.distance import cdist

import proxlearn as pl

lengths, thetas = [], []


def record(event):
    thetas.append(event.cloud.theta.numpy())
    if event.step:
        cost = cdist(thetas[-2], thetas[-1], "sqeuclidean")
        lengths.append(cost[linear_sum_assignment(cost)].mean() ** 0.5)
    return sum(lengths) > 10


run = pl.train("dataset=sine", "N=100", "steps=1000", "weights=uniform", callbacks=[record])
print(f"{run.state} at step {run.step}: the length of the path is {sum(lengths):.2f}")
