"""The runs from which the paper's tables and figures are built, in the order in which they are trained.

An *entry* of the plan is an experiment (configs/experiment/) with overrides, and represents all runs of its sweep. Runs
have readable names (``table2/beta0.05-seed0``) instead of hashes, so that a table finds its runs even if keys are added
to the config.
"""

from __future__ import annotations

import itertools
import shlex
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from hydra.core.override_parser.overrides_parser import OverridesParser

from proxlearn.config.compose import compose, parse

FIXED_OVERRIDES = ("threads=1", "films=false", "keep_checkpoints=1", "checkpoint_every=2000")
"""Overrides that apply to every run, unless its entry overrides the same keys."""
RUNS_FOLDER = "runs"
"""Subfolder of the results that contains the run folders of this machine; it is not committed."""


@dataclass(frozen=True)
class PlannedRun:
    """A run of the plan: its name in the archive, the overrides of its `proxlearn train` command, and its folder."""

    name: str
    experiment: str
    overrides: tuple[str, ...]
    folder: Path
    quick: bool
    cloud_steps: tuple[int, ...] = ()
    """Steps whose clouds are archived; see PlanEntry."""
    keeps_points: bool = False
    """Whether the data points are archived; see PlanEntry."""
    keeps_free_energy: bool = False
    """Whether the free energy of the stored clouds is archived; see PlanEntry."""

    @property
    def command(self) -> str:
        """The command that trains the run."""
        return shlex.join(["proxlearn", "train", *self.overrides, f"hydra.run.dir={self.folder}"])

    @property
    def init_from(self) -> Path | None:
        """The folder of the run from whose cloud this run starts; None if this run draws its own initial cloud."""
        return next((Path(word.partition("=")[2]) for word in self.overrides if word.startswith("init_from=")), None)


@dataclass(frozen=True)
class PlanEntry:
    """An experiment with overrides; an override of a swept key replaces the values that the experiment sweeps."""

    name: str
    experiment: str
    overrides: tuple[str, ...] = ()
    quick_seeds: int = 1
    """The number of seeds that `proxlearn paper --quick` runs."""
    cloud_steps: tuple[int, ...] = ()
    """Steps whose clouds a table or a figure needs; the archive keeps the stored clouds nearest to them."""
    keeps_points: bool = False
    """Whether the archive keeps the data points of the runs, because a table needs them."""
    keeps_free_energy: bool = False
    """Whether the archive keeps the free energy of the runs' clouds; the clouds themselves are too large to be
    archived."""

    @cached_property
    def jobs(self) -> tuple[tuple[str, ...], ...]:
        """The overrides of the swept keys for each run, in the same order as in Hydra's sweeper."""
        composed = compose(parse([f"experiment={self.experiment}"]))
        swept = {str(key): str(values) for key, values in composed.hydra.sweeper.params.items()}
        own = (override.partition("=") for override in self.overrides)
        swept |= {key: values for key, _, values in own if key in swept}
        parsed = OverridesParser.create().parse_overrides([f"{key}={values}" for key, values in swept.items()])
        choices = [
            [f"{override.get_key_element()}={value}" for value in override.sweep_string_iterator()]
            if override.is_sweep_override()
            else [str(override.input_line)]
            for override in parsed
        ]
        return tuple(itertools.product(*choices))

    def runs(self, root: Path, quick: bool) -> list[PlannedRun]:
        """Return the runs of the entry with their folders in ``root``.

        If ``quick`` is true, the result contains only the runs with the first ``quick_seeds`` seeds.
        """
        swept = {override.partition("=")[0] for override in self.jobs[0]}
        own = {override.partition("=")[0] for override in self.overrides}
        fixed = [override for override in FIXED_OVERRIDES if override.partition("=")[0] not in own]
        fixed += [override.format(root=root) for override in self.overrides if override.partition("=")[0] not in swept]
        seeds = list(dict.fromkeys(_seed(job) for job in self.jobs))
        kept_seeds = seeds[: self.quick_seeds] if quick else seeds
        runs = []
        for job in self.jobs:
            if _seed(job) in kept_seeds:
                name = f"{self.name}/{'-'.join(_label(override) for override in job)}"
                overrides = (f"experiment={self.experiment}", *fixed, *job)
                folder = root / RUNS_FOLDER / name
                kept = (self.cloud_steps, self.keeps_points, self.keeps_free_energy)
                runs.append(PlannedRun(name, self.experiment, overrides, folder, quick, *kept))
        return runs


FIG4_STEPS = (100, 1000, 5000)
"""The recursions that the insets of Figure 4 show."""

PLAN = (
    PlanEntry("table5", "table5", cloud_steps=(5000,), keeps_points=True),
    PlanEntry("table5-pdf", "table5", ("rho0=pdf",), cloud_steps=(5000,), keeps_points=True),
    PlanEntry("table5-points", "table5", ("dataset.points=1000",), cloud_steps=(5000,), keeps_points=True),
    PlanEntry("fig4", "fig4", ("films=true",), cloud_steps=FIG4_STEPS),
    PlanEntry("fig5", "fig5", quick_seeds=2, cloud_steps=(3200,)),
    PlanEntry("table4", "table4"),
    # These runs use one seed of each experiment whose particles have few enough parameters for an estimate of their
    # entropy.
    PlanEntry("free-energy-sine", "table5", ("N=1000", "seed=0", "films=true"), keeps_free_energy=True),
    PlanEntry("free-energy", "table4", ("seed=0", "films=true"), keeps_free_energy=True),
    PlanEntry(
        "free-energy-wdbc",
        "table2",
        ("beta=0.05", "films=true"),
        cloud_steps=(250_000,),
        keeps_free_energy=True,
    ),
    PlanEntry("table2", "table2"),
    PlanEntry("table2-seeds", "table2", ("beta=0.05", "seed=1,2"), quick_seeds=0),
    # epsilon=1 is the same as beta=0.05 in Table 2.
    PlanEntry("table3", "table3", ("epsilon=0.1,0.5,5,10",)),
    PlanEntry("table1", "table1", ("device.dtype=float32",)),
    PlanEntry("table1-seeds", "table1", ("device.dtype=float32", "beta=0.05", "seed=1,2"), quick_seeds=0),
    PlanEntry("table1-float64", "table1", ("beta=0.05",)),
    # Some of the runs above without the proximal step, to measure the effect of the weights.
    PlanEntry("table5-uniform", "table5", ("weights=uniform", "N=1000")),
    PlanEntry("table4-uniform", "table4", ("weights=uniform", "dataset=banana,twonorm")),
    PlanEntry("diabetes-uniform", "table4", ("weights=uniform", "dataset=diabetes", "seed=0")),
    PlanEntry("table2-uniform", "table2", ("weights=uniform", "beta=0.05")),
    # The 30 short runs start from the initial cloud of the long run.
    PlanEntry("fig3-cloud", "fig3", ("seed=0", "steps=0")),
    PlanEntry("fig3-start", "fig3", ("steps=3000", "init_from={root}/runs/fig3-cloud/seed0"), quick_seeds=2),
    PlanEntry("fig3", "fig3", ("seed=0",)),
    # The paper's line is a mean over runs; its distance from single runs is largest before recursion 60000.
    PlanEntry("fig3-seeds", "fig3", ("seed=1,2,3,4", "steps=60000"), quick_seeds=0),
    PlanEntry("table3-seeds", "table3", ("epsilon=0.1,0.5,5,10", "seed=1,2"), quick_seeds=0),
    PlanEntry("table2-more", "table2", ("beta=0.03,0.07", "seed=1,2"), quick_seeds=0),
)
"""All entries of the plan; entries whose runs take only minutes come first."""


def plan_entry(name: str) -> PlanEntry:
    """Return the entry of the plan called ``name``."""
    return next(entry for entry in PLAN if entry.name == name)


def _seed(job: tuple[str, ...]) -> str:
    return next(override for override in job if override.startswith("seed="))


def _label(override: str) -> str:
    key, _, value = override.partition("=")
    return value if key == "dataset" else key + value
