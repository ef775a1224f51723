"""Define a neuron by a function of one particle and one sample; the gradient is computed automatically."""

import torch

import proxlearn as pl


def wave(theta, x):
    return theta["a"][0] * torch.cos(theta["w"] @ x + theta["b"][0])


x = torch.linspace(-1, 1, 100, dtype=torch.float64)
neuron = pl.neurons.FunctionNeuron(wave, blocks={"a": 1, "b": 1, "w": 1}, name="wave")
risk = pl.Risk(x[:, None], torch.cos(9 * x), neuron)
cloud = pl.init(risk, N=200, scale=6.0, seed=0)
hyper = pl.Hyper(beta=1e5, h=0.3, epsilon=0.1, drift="first_variation", prox_potential="first_variation")
for cloud, info in pl.iterate(risk, cloud, hyper, steps=300):
    pass
print(f"risk: {float(risk.value(cloud.theta, cloud.rho)):.4f}")
