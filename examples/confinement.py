"""Compare the stationary variance of a coordinate on which no data act, an Ornstein-Uhlenbeck process, with theory."""

import torch

import proxlearn as pl

# With x = 0 and y = 0, the data do not act on w, whose stationary distribution is normal: variance 1 / (beta lambda).
beta, strength = 2.0, 0.5
risk = pl.Risk(torch.zeros(1, 1), torch.zeros(1), confinement={"a": 1.0, "b": 1.0, "w": strength})
readings = {"drift": "first_variation", "prox_potential": "first_variation"}
hyper = pl.Hyper(beta=beta, h=0.05, epsilon=0.1, weights="uniform", **readings)
cloud = pl.init(risk, N=4000, scale=3.0, seed=0)
variances = [float(cloud.theta[:, 2].var()) for cloud, info in pl.iterate(risk, cloud, hyper, steps=600)]
variance = sum(variances[300:]) / 300
print(f"variance of w: {variance:.3f}, in theory: {1 / (beta * strength):.3f}")
