"""Results printed in the paper, by table, and the experiments to which they belong.

Accuracies are percentages, except in Table 4, where they are between 0 and 1.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

from omegaconf import OmegaConf

from proxlearn.compare.statistics import MeanSd
from proxlearn.config.compose import register_resolvers
from proxlearn.config.config_folders import read_config_file, read_dataset_file
from proxlearn.config.run_name import trajectory
from proxlearn.config.schema import TrainConfig, build
from proxlearn.errors import InputError

STEPS = {
    "table1": 1_000_000,
    "table2": 250_000,
    "table3": 250_000,
    "banana": 3500,
    "diabetes": 499_000,
    "twonorm": 10_000,
    "table5": 5000,
    "shd": 1_000_000,
}
"""Number of recursions of the paper's runs; a run of this package is complete if it is at least as long."""

TABLE1 = {0.03: (91.17, 92.35), 0.05: (92.94, 92.94), 0.07: (78.23, 92.94)}
"""Table 1: unweighted and weighted accuracy by beta."""
TABLE1_HOURS = 33.0

TABLE2 = {0.03: (91.18, 91.18, 1.415), 0.05: (91.18, 92.94, 1.533), 0.07: (90.59, 91.76, 1.704)}
"""Table 2: unweighted accuracy, weighted accuracy, and hours on a Jetson TX2, by beta."""

TABLE3 = {
    0.1: (1.4348e-2, 32863.0),
    0.5: (1.3740e-2, 11026.0),
    1.0: (1.0412e-2, 5022.0),
    5.0: (1.1293e-2, 4731.0),
    10.0: (9.8849e-3, 4766.0),
}
"""Table 3: final unweighted risk, and duration in seconds, by epsilon."""

TABLE4 = {
    "banana": (MeanSd(0.551, 0.01), MeanSd(0.535, 0.05)),
    "diabetes": (MeanSd(0.736, 0.02), MeanSd(0.731, 0.01)),
    "twonorm": (MeanSd(0.972, 0.002), MeanSd(0.972, 0.002)),
}
"""Table 4: weighted and unweighted accuracy by dataset."""
TABLE4_QUOTED = {
    "banana": (MeanSd(0.550, 0.01), MeanSd(0.559, 0.01)),
    "diabetes": (MeanSd(0.777, 0.007), MeanSd(0.778, 0.002)),
    "twonorm": (MeanSd(0.981, 0.0002), MeanSd(0.981, 0.0006)),
}
"""Accuracies of JKO-ICNN and of SWGF + RealNVP, by dataset; the paper quotes them from Bonet et al. (2022)."""

JKO_ICNN_RUNS = {"banana": (0.5613, -0.6910), "diabetes": (0.7727, -0.4510), "twonorm": (0.9818, -0.0579)}
"""Accuracy and mean test log-likelihood, by dataset, of the single runs that Mokrov et al. (2021) published."""

TABLE5 = {500: 0.01241931, 700: 0.01075817, 1000: 0.00806645, 2000: 0.00762518}
"""Table 5: final risk by N."""

SHD = {"test": 61.079, "train": 75.330}
SHD_HOURS = 5.3

Figures = dict[tuple[str, str, str], MeanSd]
"""Printed results by part, estimate and metric, in the units of accuracy.csv."""

REPEATED = ("seed", "split_seed")
"""Settings that differ between repetitions of the same experiment."""


@dataclass(frozen=True)
class PublishedExperiment:
    """An experiment of the paper: its settings and its printed results."""

    source: str
    dataset: str
    steps: int
    figures: Figures
    overrides: Mapping[str, Any]
    """Settings that differ from the dataset's defaults, in nested groups as in the config."""

    @cached_property
    def config(self) -> TrainConfig:
        """The complete config of a run of the experiment."""
        return paper_config(self.dataset, {"steps": self.steps, **self.overrides})

    @cached_property
    def settings(self) -> dict[str, Any]:
        return experiment_settings(self.config)


def find_experiments(config: Mapping[str, Any]) -> list[PublishedExperiment]:
    """Return the experiments of the paper that have the same settings as ``config``, except for the number of steps.

    The caller must compare the ``steps`` of an experiment with the number of steps of the run.
    """
    try:
        checked = build(TrainConfig, config)
    except InputError:
        # A config that fails the checks of this version cannot be compared.
        return []
    settings = experiment_settings(checked)
    return [
        experiment
        for experiment in EXPERIMENTS
        if experiment.dataset == checked.dataset.name and experiment.settings == settings
    ]


def experiment_settings(config: TrainConfig) -> dict[str, Any]:
    """Return the settings that affect the result of an experiment, except its seeds, data path and device."""
    settings = {key: value for key, value in trajectory(config).items() if key not in REPEATED}
    # The datasets of the paper have known checksums, so the location of their files does not matter.
    settings["dataset"] = {key: value for key, value in settings["dataset"].items() if key != "path"}
    precision = {key: value for key, value in settings["device"].items() if key != "device"}
    if precision["fallback_dtype"] == "float64":
        # A run without the fallback stops at the first non-finite value; until then, both runs are the same.
        precision["fallback_dtype"] = None
    return settings | {"device": precision}


def paper_config(dataset: str, overrides: Mapping[str, Any]) -> TrainConfig:
    """Return the config of recipe=paper for a dataset, from the packaged files and ``overrides`` only."""
    register_resolvers()
    root = OmegaConf.create({key: value for key, value in read_config_file("train").items() if key in FIELDS})
    groups = {group: read_config_file(f"{group}/{option}") for group, option in GROUPS.items()}
    groups["dataset"] = read_dataset_file(dataset)
    merged = OmegaConf.merge(root, groups, read_config_file("recipe/paper"), dict(overrides))
    values: Any = OmegaConf.to_container(merged, resolve=True)
    del values["dataset"]["default_hyperparameters"]
    return build(TrainConfig, values | {"init_sha256": None})


GROUPS = {"device": "cpu", "logger": "csv"}
FIELDS = frozenset(field.name for field in fields(TrainConfig))


def _wdbc(table: str, figures: Figures, **overrides: Any) -> PublishedExperiment:
    return PublishedExperiment(f"Table {table[-1]}", "wdbc", STEPS[table], figures, overrides)


def _accuracies(weighted: MeanSd, unweighted: MeanSd, rule: str = "unweighted") -> Figures:
    return {("test", "weighted", "accuracy"): weighted, ("test", rule, "accuracy"): unweighted}


def _percentages(unweighted: float, weighted: float) -> Figures:
    """Return the accuracies of a row of Table 1 or 2, which are given in per cent.

    The "unweighted" column of these tables counts only saturated predictions as correct.
    """
    return _accuracies(MeanSd(weighted / 100), MeanSd(unweighted / 100), "unweighted_saturated")


EXPERIMENTS = (
    *(
        _wdbc("table1", _percentages(*figures), beta=beta, device={"dtype": "float64"})
        for beta, figures in TABLE1.items()
    ),
    *(_wdbc("table2", _percentages(*figures[:2]), beta=beta) for beta, figures in TABLE2.items()),
    *(
        _wdbc("table3", {("test", "unweighted", "risk_paper"): MeanSd(risk)}, beta=0.05, epsilon=epsilon)
        for epsilon, (risk, _) in TABLE3.items()
    ),
    *(PublishedExperiment("Table 4", name, STEPS[name], _accuracies(*figures), {}) for name, figures in TABLE4.items()),
    *(
        PublishedExperiment(
            "Table 5 (which does not define its quantity)",
            "sine",
            STEPS["table5"],
            {("test", "weighted", "risk"): MeanSd(risk)},
            {"N": N},
        )
        for N, risk in TABLE5.items()
    ),
    PublishedExperiment(
        "Section 5",
        "shd",
        STEPS["shd"],
        {(part, "particle", "accuracy"): MeanSd(share / 100) for part, share in SHD.items()},
        {},
    ),
)
"""All experiments with which a run can be compared."""
