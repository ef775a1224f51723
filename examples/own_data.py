"""Train a cloud on your own arrays, and record the risk of every iterate."""

import numpy as np

import proxlearn as pl

rng = np.random.default_rng(0)
X = rng.uniform(-3, 3, size=(200, 1))
y = np.sin(X[:, 0]) + 0.1 * rng.normal(size=200)

risk = pl.Risk(X, y, neuron=pl.neurons.Tanh())
cloud = pl.init(risk, N=300, seed=0)
hyper = pl.Hyper(beta=1e4, h=0.3, epsilon=0.1, drift="first_variation", prox_potential="first_variation")
risks = [float(risk.value(cloud.theta, cloud.rho)) for cloud, info in pl.iterate(risk, cloud, hyper, steps=500)]
print(f"risk after step 1: {risks[0]:.3f}, after step {len(risks)}: {risks[-1]:.3f}")
