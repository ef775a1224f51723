"""What one `proxlearn compare` is to compute: plain values, known before any data is loaded.

The protocol decides how the features are scaled: alike for all methods, or as the samplers' papers did it. Every
scaling is fitted on the training part. The reference lines are standardised under both protocols, so that they are the
same lines; the Bayes rule applies to raw features.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from proxlearn.baselines.method import Method, Preset
from proxlearn.config.schema import DatasetConfig
from proxlearn.data.scaling import FITS, Fit, symmetric

Protocol = Literal["matched", "paper"]
SCALINGS: dict[str, Fit] = {**FITS, "symmetric": symmetric}
PAPERS: dict[str, str] = {"banana": "standard", "diabetes": "symmetric", "twonorm": "none"}
"""Scalings of the samplers in Mokrov et al. (2021) and Bonet et al. (2022); other data is standardised."""
PUBLISHED = ("jko_icnn", "swgf")
"""Methods whose preset `paper` has the settings of those papers, and exists for their data only."""
AUTHORS: Literal["authors"] = "authors"
AUTHORS_SEEDS = {"diabetes": 42}
"""dataset: the seed with which Mokrov et al. (2021) and Bonet et al. (2022) let torch permute the rows; the first 80 %
are for training. Only data whose file lists its rows in UCI's order, which is assumed to be theirs."""
SplitName: TypeAlias = int | Literal["authors"]
"""The number of a split, which is its seed, or AUTHORS."""
CELLS, SPLITS, LOG = "cells.jsonl", "splits.jsonl", "compare.log"
"""In the output folder: the caches of results and of splits, and what the cells' processes print."""


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
    """dataset: a number of splits other than ``splits``."""
    authors: bool = False
    """Whether the split of the samplers' authors is included, for the datasets of which it is known."""

    @property
    def name(self) -> str:
        """The folder of its tables, below the output folder."""
        tempered = "" if self.temperature == 1 else f"-T{self.temperature:g}"
        return f"{self.protocol}-{self.preset}{tempered}"


def scaling_of(protocol: Protocol, method: Method, dataset: str) -> str:
    """The scaling's name."""
    if method.scaling is not None:
        return method.scaling
    if protocol == "paper" and method.block == "sampler":
        return PAPERS.get(dataset, "standard")
    return "standard"
