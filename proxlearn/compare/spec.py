"""The specification of a `proxlearn compare` command, which is known before any data are loaded.

The protocol determines the scaling of the features. With ``matched``, all methods use standardised features; with
``paper``, the samplers use the scaling of their papers. Every scaling is fitted to the training part. The reference
methods use standardised features under both protocols, so that their results do not depend on the protocol. The Bayes
rule always uses unscaled features.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from proxlearn.baselines.registry import Method, Preset
from proxlearn.config.schema import DatasetConfig
from proxlearn.data.scaling import FITS, ScalerFit, symmetric

Protocol = Literal["matched", "paper"]
SCALINGS: dict[str, ScalerFit] = {**FITS, "symmetric": symmetric}
PAPERS: dict[str, str] = {"banana": "standard", "diabetes": "symmetric", "twonorm": "none"}
"""Scaling of each dataset in Mokrov et al. (2021) and Bonet et al. (2022); other datasets are standardised."""
PUBLISHED = ("jko_icnn", "swgf")
"""Methods whose preset `paper` contains the settings of Mokrov et al. (2021) or Bonet et al. (2022). For these methods,
the preset exists only for the datasets of these papers."""
AUTHORS: Literal["authors"] = "authors"
AUTHORS_SEEDS = {"diabetes": 42}
"""Seeds, by dataset, with which Mokrov et al. (2021) and Bonet et al. (2022) permute the rows in torch; the first 80 %
are for training. A dataset is included only if its file has the rows in the order of the UCI archive, because this is
assumed to be the order in the authors' files."""
SplitName: TypeAlias = int | Literal["authors"]
"""Name of a split: its number, which is also its seed, or AUTHORS."""
CELLS, SPLITS, LOG = "cells.jsonl", "splits.jsonl", "compare.log"
"""Files in the output folder: the cache of results, the cache of splits, and the log of the processes."""


@dataclass(frozen=True)
class ComparisonSpec:
    """The datasets, methods, splits and options of a comparison."""

    datasets: tuple[DatasetConfig, ...]
    methods: tuple[Method, ...]
    splits: int
    preset: Preset
    protocol: Protocol
    temperature: float
    exceptions: dict[str, int] = field(default_factory=dict)
    """Number of splits by dataset, for each dataset that does not have ``splits`` splits."""
    authors: bool = False
    """Whether the split of the samplers' authors is included, for the datasets for which it is known."""

    @property
    def name(self) -> str:
        """The name of the tables' folder, a subfolder of the output folder."""
        tempered = "" if self.temperature == 1 else f"-T{self.temperature:g}"
        return f"{self.protocol}-{self.preset}{tempered}"


def scaling_of(protocol: Protocol, method: Method, dataset: str) -> str:
    """Return the name of the scaling that a method uses on a dataset."""
    if method.scaling is not None:
        return method.scaling
    if protocol == "paper" and method.block == "sampler":
        return PAPERS.get(dataset, "standard")
    return "standard"
