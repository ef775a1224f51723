"""The paper's values belong to its own experiments, setting for setting, and to no other run."""

from __future__ import annotations

import dataclasses
import typing
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from proxlearn.config.run_name import NOT_TRAJECTORY
from proxlearn.config.schema import DatasetConfig, DeviceConfig, TrainConfig, build
from proxlearn.errors import InputError
from proxlearn.paper.published import EXPERIMENTS, STEPS, find_experiments
from tests.conftest import config_of

SAME = {*NOT_TRAJECTORY, "seed", "split_seed", "dataset.path", "device.device"}
"""Settings that repeat an experiment, or say where and how it is computed and logged."""
SECTIONS = {"dataset": DatasetConfig, "device": DeviceConfig}
LEAVES = [
    *((name,) for name in TrainConfig.__dataclass_fields__ if name not in SECTIONS and name not in SAME),
    *((group, name) for group, cls in SECTIONS.items() for name in cls.__dataclass_fields__),
]
LEAVES = [leaf for leaf in LEAVES if ".".join(leaf) not in SAME]
MAKERS = {
    float: st.floats(1e-6, 0.99),
    int: st.integers(1, 10**6),
    bool: st.booleans(),
    str: st.sampled_from(["tanh", "softmax", "other"]),
    type(None): st.none(),
}


def values_of(hint: Any) -> st.SearchStrategy[Any]:
    """Return all values that a field of this type may hold."""
    if typing.get_origin(hint) is typing.Literal:
        return st.sampled_from(typing.get_args(hint))
    if hint in MAKERS:
        return MAKERS[hint]
    return st.one_of(*(values_of(choice) for choice in typing.get_args(hint)))


def is_same_precision(leaf: tuple[str, ...], old: Any, new: Any) -> bool:
    """Return whether the precision is the same: a fallback does not affect a run that stays finite without it."""
    return leaf == ("device", "fallback_dtype") and {old, new} <= {None, "float64"}


@settings(deadline=None)
@given(st.data(), st.sampled_from(EXPERIMENTS), st.sampled_from(LEAVES))
def test_one_changed_setting_and_the_papers_figures_are_gone(data, experiment, leaf) -> None:
    config = dataclasses.asdict(experiment.config)
    assert experiment in find_experiments(config)
    *groups, key = leaf
    section = config[groups[0]] if groups else config
    old = section[key]
    if leaf == ("dataset", "initial"):
        block = data.draw(st.sampled_from(sorted(old)))
        new = old | {block: (old[block][0] - data.draw(st.floats(0.01, 1)), old[block][1])}
    else:
        new = data.draw(values_of(typing.get_type_hints(SECTIONS[groups[0]] if groups else TrainConfig)[key]))
    assume(new != old and not is_same_precision(leaf, old, new))
    section[key] = new
    try:
        build(TrainConfig, config)
    except InputError:
        assume(False)
    assert experiment not in find_experiments(config)


@settings(deadline=None)
@given(st.sampled_from(EXPERIMENTS), st.integers(0, 100), st.integers(0, 100), st.integers(0, 10**7), st.booleans())
def test_repetitions_logging_and_place_leave_it_the_papers_experiment(experiment, seed, split, steps, films) -> None:
    config = dataclasses.asdict(experiment.config)
    config |= {"seed": seed, "split_seed": split, "steps": steps, "films": films, "log_every": 7, "threads": 1}
    config["device"] |= {"device": "auto", "threads": 2}
    assert experiment in find_experiments(config)


@pytest.mark.parametrize(
    "words",
    [
        *(["table1", f"beta={beta}"] for beta in (0.03, 0.05, 0.07)),
        *(["table2", f"beta={beta}"] for beta in (0.03, 0.05, 0.07)),
        *(["table3", f"epsilon={epsilon}"] for epsilon in (0.1, 0.5, 1, 5, 10)),
        *(["table4", f"dataset={name}"] for name in ("banana", "diabetes", "twonorm")),
        *(["table5", f"N={N}"] for N in (500, 700, 1000, 2000)),
        ["fig3"],
    ],
    ids=" ".join,
)
def test_the_packaged_experiments_are_the_papers(words) -> None:
    """They are composed by Hydra here and by published.py there."""
    config = config_of(f"experiment={words[0]}", *words[1:])
    sources = {experiment.source: experiment.steps for experiment in find_experiments(dataclasses.asdict(config))}
    title = {"fig3": "Section 5", "table5": "Table 5 (which does not define its figure)"}
    source = title.get(words[0], f"Table {words[0][-1]}")
    assert sources[source] == config.steps
    assert config.steps in STEPS.values()


def test_a_config_that_cannot_be_checked_has_no_figures_of_the_papers() -> None:
    config = dataclasses.asdict(EXPERIMENTS[0].config)
    assert find_experiments(config)
    for wrong in ({"beta": "a"}, {"dataset": 5}, {"unknown": 1}, {"dataset": config["dataset"] | {"name": ["wdbc"]}}):
        assert not find_experiments(config | wrong)
