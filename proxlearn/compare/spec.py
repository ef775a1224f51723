"""The specification of one `proxlearn compare`: plain values, known before any data is loaded.

The protocol decides how the features are scaled: alike for all methods, or as in the samplers' papers. Every
scaling is fitted on the training part. The reference lines are standardised under both protocols, so that they are the
same lines; the Bayes rule applies to raw features.
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
"""Scalings of the samplers in Mokrov et al. (2021) and Bonet et al. (2022); other data is standardised."""
PUBLISHED = ("jko_icnn", "swgf")
"""Methods whose preset `paper` has the settings of these papers and exists for their data only."""
AUTHORS: Literal["authors"] = "authors"
AUTHORS_SEEDS = {"diabetes": 42}
"""dataset: the seed with which Mokrov et al. (2021) and Bonet et al. (2022) let torch permute the rows; the first 80 %
are for training. Only data whose file lists its rows in UCI's order, which is assumed to be theirs."""
SplitName: TypeAlias = int | Literal["authors"]
"""The number of a split, which is its seed, or AUTHORS."""
CELLS, SPLITS, LOG = "cells.jsonl", "splits.jsonl", "compare.log"
"""Files in the output folder: the caches of results and of splits, and the output of the cells' processes."""


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
    """Whether the split of the samplers' authors is included, for the datasets for which it is known."""

    @property
    def name(self) -> str:
        """The name of the tables' folder, below the output folder."""
        tempered = "" if self.temperature == 1 else f"-T{self.temperature:g}"
        return f"{self.protocol}-{self.preset}{tempered}"


def scaling_of(protocol: Protocol, method: Method, dataset: str) -> str:
    """Return the name of the scaling that a method uses on a dataset."""
    if method.scaling is not None:
        return method.scaling
    if protocol == "paper" and method.block == "sampler":
        return PAPERS.get(dataset, "standard")
    return "standard"
