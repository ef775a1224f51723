"""Which runs the paper's tables and figures are made from, in the order in which they are made.

An *entry* is an experiment (configs/experiment/) with overrides, and stands for all runs of its sweep. A run's folder
has a plain name, not a hash: a table finds its runs after years, whatever keys the config has gained since.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from hydra.core.override_parser.overrides_parser import OverridesParser

from proxlearn.config.compose import compose, parse
from proxlearn.config.sweep_grid import expand_grid

ALWAYS = ("threads=1", "films=false", "keep_checkpoints=1", "checkpoint_every=2000")
"""Runs in the background, in folders small enough to be committed."""
QUICK_SHARE, QUICK_STEPS, QUICK_ROWS = 100, 200, 8
"""`make paper-quick`: one in so many steps, so many at most, and so many of them logged."""


@dataclass(frozen=True)
class PaperRun:
    """One run: the words of its `proxlearn train` command, and its folder."""

    overrides: tuple[str, ...]
    folder: Path
    quick: bool


@dataclass(frozen=True)
class Entry:
    """An experiment with overrides; those of swept keys replace the experiment's own."""

    name: str
    experiment: str
    overrides: tuple[str, ...] = ()
    quick_seeds: int = 1
    """Seeds that `make paper-quick` takes of it."""

    @cached_property
    def sweep(self) -> tuple[tuple[str, ...], ...]:
        """The swept keys' values, run by run, expanded by Hydra itself."""
        composed = compose(parse([f"experiment={self.experiment}"]))
        swept = {str(key): str(values) for key, values in composed.hydra.sweeper.params.items()}
        swept |= {key: values for key, _, values in (each.partition("=") for each in self.overrides) if key in swept}
        parsed = OverridesParser.create().parse_overrides([f"{key}={values}" for key, values in swept.items()])
        return tuple(tuple(job) for job in expand_grid(parsed))

    def runs(self, root: Path, quick: bool) -> list[PaperRun]:
        swept = {word.partition("=")[0] for word in self.sweep[0]}
        fixed = [each.format(root=root) for each in self.overrides if each.partition("=")[0] not in swept]
        seeds = list(dict.fromkeys(_seed(job) for job in self.sweep))
        kept = seeds[: self.quick_seeds] if quick else seeds
        return [
            PaperRun(
                (f"experiment={self.experiment}", *(word for word in ALWAYS if not self._sets(word)), *fixed, *job),
                root / "runs" / self.name / "-".join(_label(word) for word in job),
                quick,
            )
            for job in self.sweep
            if _seed(job) in kept
        ]

    def _sets(self, word: str) -> bool:
        return any(each.partition("=")[0] == word.partition("=")[0] for each in self.overrides)


PLAN = (
    Entry("table5", "table5"),
    Entry("table5-pdf", "table5", ("rho0=pdf",)),
    Entry("table5-points", "table5", ("dataset.points=1000",)),
    Entry("fig4", "fig4", ("films=true",)),
    Entry("fig5", "fig5", quick_seeds=2),
    Entry("table4", "table4"),
    Entry("table2", "table2"),
    Entry("table2-seeds", "table2", ("beta=0.05", "seed=1,2"), quick_seeds=0),
    # epsilon=1 is Table 2's beta=0.05.
    Entry("table3", "table3", ("epsilon=0.1,0.5,5,10",)),
    Entry("table1", "table1", ("device.dtype=float32",)),
    Entry("table1-seeds", "table1", ("device.dtype=float32", "beta=0.05", "seed=1,2"), quick_seeds=0),
    Entry("table1-float64", "table1", ("beta=0.05",)),
    # The same without the proximal step: what it changes is what the weights do.
    Entry("table5-uniform", "table5", ("weights=uniform", "N=1000")),
    Entry("table4-uniform", "table4", ("weights=uniform", "dataset=banana,twonorm")),
    Entry("diabetes-uniform", "table4", ("weights=uniform", "dataset=diabetes", "seed=0")),
    Entry("table2-uniform", "table2", ("weights=uniform", "beta=0.05")),
    # The 30 runs share the first cloud of the long one.
    Entry("fig3-cloud", "fig3", ("seed=0", "steps=0")),
    Entry("fig3-start", "fig3", ("steps=3000", "init_from={root}/runs/fig3-cloud/seed0"), quick_seeds=2),
    Entry("fig3", "fig3", ("seed=0",)),
    Entry("table3-seeds", "table3", ("epsilon=0.1,0.5,5,10", "seed=1,2"), quick_seeds=0),
    Entry("table2-more", "table2", ("beta=0.03,0.07", "seed=1,2"), quick_seeds=0),
)
"""All of it, in the order in which it is made: what takes minutes first."""


def entry(name: str) -> Entry:
    return next(each for each in PLAN if each.name == name)


def _seed(job: tuple[str, ...]) -> str:
    return next(word for word in job if word.startswith("seed="))


def _label(word: str) -> str:
    key, _, value = word.partition("=")
    return value if key == "dataset" else key + value
