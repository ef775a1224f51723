"""Minimise energies without data: a double well V splits a cloud, and an attraction W contracts it."""

import torch

import proxlearn as pl

well = pl.Energy(V=lambda theta: ((theta**2 - 1) ** 2).sum(), p=1)
attraction = pl.Energy(W=lambda theta, other: (theta - other).square().sum() / 2, p=2)
hyper = pl.Hyper(beta=50.0, h=0.02, epsilon=0.05, drift="first_variation", prox_potential="first_variation")
for cloud, info in pl.iterate(well, pl.init(well, N=200, seed=0), hyper, steps=200):
    pass
print(f"coordinates near -1 or +1: {int((cloud.theta.abs() - 1).abs().lt(0.5).sum())} of 200")
for cloud, info in pl.iterate(attraction, pl.init(attraction, N=200, scale=3.0), hyper, steps=200):
    pass
print(f"standard deviation of the contracted cloud: {float(torch.linalg.norm(cloud.theta.std(0))):.3f}")
