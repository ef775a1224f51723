"""Neurons given by a function phi(theta, x) of one particle and one sample, differentiated automatically."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from proxlearn import validators
from proxlearn.core.neurons.neuron import Neuron
from proxlearn.errors import InputError, did_you_mean
from proxlearn.printable_text import counted

__all__ = ["FunctionNeuron"]


class Blocks(dict[str, Tensor]):
    """The blocks of one particle by name; an unknown name raises InputError."""

    def __missing__(self, name: str) -> Tensor:
        raise InputError(f"phi uses the unknown block `{name}`", did_you_mean(str(name), self))


class FunctionNeuron(Neuron):
    """A neuron Phi(x, theta) = phi(theta, x) given by a user-defined function.

    Parameters
    ----------
    phi : callable
        ``phi(theta, x)`` for one particle and one sample: ``theta`` is a mapping from block names to tensors of the
        blocks' lengths, ``x`` a tensor of length n_x. It returns a scalar, or a tensor of ``outputs`` numbers, and
        consists of torch operations that ``torch.func.vmap`` can vectorise.
    blocks : Mapping[str, int] or callable
        Names and lengths of the blocks of theta, in order; or a function of n_x that returns them. Initial clouds,
        confinement per block, checkpoints and reports refer to the blocks by these names.
    outputs : int, default=1
        Number of outputs.
    name : str, default="function"
        Name of the neuron in messages. A run folder requires a registered neuron; other neurons are trained with
        ``iterate``.

    Examples
    --------
    >>> import torch, proxlearn as pl
    >>> wave = pl.neurons.FunctionNeuron(lambda theta, x: theta["a"][0] * torch.cos(theta["w"] @ x), {"a": 1, "w": 2})
    >>> wave.outputs(torch.zeros(5, 3), torch.zeros(7, 2)).shape
    torch.Size([5, 1, 7])
    """

    def __init__(
        self,
        phi: Callable[[Mapping[str, Tensor], Tensor], Tensor],
        blocks: Mapping[str, int] | Callable[[int], Mapping[str, int]],
        outputs: int = 1,
        name: str = "function",
    ) -> None:
        if not callable(phi):
            raise InputError(f"phi is {phi!r:.100}, not a function", "give a function phi(theta, x)")
        self.function, self._name = phi, name
        self.blocks = blocks if callable(blocks) else validators.blocks("blocks", blocks)
        self.num_outputs = validators.whole("the number of outputs of a neuron", outputs, 1)

    @property
    def name(self) -> str:
        return self._name

    def coordinates(self, n_x: int) -> dict[str, int]:
        return validators.blocks("blocks", self.blocks(n_x)) if callable(self.blocks) else dict(self.blocks)

    def __repr__(self) -> str:
        blocks = "by n_x" if callable(self.blocks) else ", ".join(f"{name}: {n}" for name, n in self.blocks.items())
        return f"FunctionNeuron({self.name}, blocks {blocks}, outputs={self.num_outputs})"

    def outputs(self, theta: Tensor, X: Tensor) -> Tensor:
        blocks = self.coordinates(X.shape[1])
        if theta.shape[1] != sum(blocks.values()):
            parameters = counted(sum(blocks.values()), "parameter")
            problem = f"the neuron `{self.name}` has {parameters}, but theta has {counted(theta.shape[1], 'column')}"
            raise InputError(problem, "make the lengths of the blocks add up to the number of columns of theta")

        def one(parameters: Tensor, x: Tensor) -> Tensor:
            parts = torch.split(parameters, list(blocks.values()))
            value = self.function(Blocks(zip(blocks, parts, strict=True)), x)
            if not isinstance(value, Tensor) or value.numel() != self.num_outputs:
                kind = f"shape {tuple(value.shape)}" if isinstance(value, Tensor) else f"type {type(value).__name__}"
                problem = f"phi of the neuron `{self.name}` returned a value of {kind} for one particle and one sample"
                numbers = "a scalar" if self.num_outputs == 1 else f"{self.num_outputs} numbers"
                raise InputError(problem, f"return {numbers}, or set outputs to the number of values that phi returns")
            return value.reshape(self.num_outputs)

        over_samples = torch.func.vmap(one, in_dims=(None, 0), out_dims=1)
        values: Tensor = torch.func.vmap(over_samples, in_dims=(0, None))(theta, X)
        return values
