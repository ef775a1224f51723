"""What one `proxlearn compare` is asked for: plain values, known before anything is loaded.

The protocol says what is done to the features: alike for all methods, or as the samplers' papers did it. Every scaling
is fitted on the training part. The reference lines are standardised under both protocols, so that they are the same
lines; the Bayes rule is a statement on raw features.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from proxlearn.baselines.method import Method, Preset
from proxlearn.config.schema import DatasetConfig
from proxlearn.data.scaling import FITS, ScalerFit, symmetric

Protocol = Literal["matched", "paper"]
SCALINGS: dict[str, ScalerFit] = {**FITS, "symmetric": symmetric}
PAPERS: dict[str, str] = {"banana": "standard", "diabetes": "symmetric", "twonorm": "none"}
"""Of the samplers in Mokrov et al. (2021) and Bonet et al. (2022); data that they lack is standardised."""
PUBLISHED = ("jko_icnn", "swgf")
"""Methods whose preset `paper` is of those papers, and for their data alone."""
AUTHORS: Literal["authors"] = "authors"
AUTHORS_SEEDS = {"diabetes": 42}
"""dataset: the seed with which Mokrov et al. (2021), and Bonet et al. (2022) after them, have torch permute the rows;
the first 80 % are trained on. Only data whose file lists its rows as UCI's does, and so, it is assumed, theirs."""
Name: TypeAlias = int | Literal["authors"]
"""Of a split: its number, which is its seed, or AUTHORS."""
LOG = "compare.log"
"""In the output folder: what the cells' processes print."""


@dataclass(frozen=True)
class ComparisonSpec:
    """Every method on every split of every dataset."""

    datasets: tuple[DatasetConfig, ...]
    methods: tuple[Method, ...]
    splits: int
    preset: Preset
    protocol: Protocol
    temperature: float
    exceptions: dict[str, int] = field(default_factory=dict)
    """dataset: another number of splits."""
    authors: bool = False
    """The samplers' own split too, of the datasets of which it is known."""

    @property
    def name(self) -> str:
        """Of the folder of its tables, below the output folder."""
        tempered = "" if self.temperature == 1 else f"-T{self.temperature:g}"
        return f"{self.protocol}-{self.preset}{tempered}"


def scaling_of(protocol: Protocol, method: Method, dataset: str) -> str:
    """The scaling's name."""
    if method.scaling is not None:
        return method.scaling
    if protocol == "paper" and method.block == "sampler":
        return PAPERS.get(dataset, "standard")
    return "standard"
