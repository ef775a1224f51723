"""The schema: the values of a valid config are typed, finite and in range, and the config determines the run's name."""

from __future__ import annotations

import dataclasses
import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxlearn.config.run_name import NOT_TRAJECTORY, run_name
from proxlearn.config.schema import TrainConfig, build
from proxlearn.errors import InputError
from proxlearn.validators import integer, real
from tests.conftest import config_of


def config(*overrides: str) -> TrainConfig:
    return config_of(*overrides)


@given(st.floats() | st.integers() | st.text() | st.none() | st.booleans() | st.lists(st.integers()))
def test_a_real_is_finite_and_in_range_or_refused(value: Any) -> None:
    try:
        number = real(above=0, below=10, example=1)("x", value)
    except InputError:
        assert isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < 10
    else:
        assert math.isfinite(number)
        assert 0 < number < 10


@given(st.floats() | st.integers() | st.text() | st.none() | st.booleans())
def test_an_integer_is_whole_and_in_range_or_refused(value: Any) -> None:
    try:
        whole = integer(at_least=1, below=10**6, example=1)("x", value)
    except InputError:
        is_number = not isinstance(value, bool) and isinstance(value, (int, float))
        assert not (is_number and 1 <= value < 10**6 and value == int(value))
    else:
        assert type(whole) is int
        assert whole == value


def test_the_dataset_brings_the_papers_settings_and_the_command_line_overrides_them() -> None:
    wdbc, sine = config(), config("dataset=sine", "beta=0.7")
    assert (wdbc.beta, wdbc.h, wdbc.epsilon, wdbc.N, wdbc.delta, wdbc.L) == (0.05, 1e-3, 1.0, 1000, 1e-3, 300)
    assert (wdbc.steps, wdbc.rho0, wdbc.device.dtype) == (250000, "pdf", "float32")
    assert (sine.beta, sine.h, sine.epsilon, sine.L, sine.steps, sine.rho0) == (0.7, 1e-4, 1e-3, 10, 5000, "uniform")


def test_a_run_folders_config_builds_the_same_config() -> None:
    original = config("dataset=sine", "device=jetson-float32-to-float64")
    stored = json.loads(json.dumps(dataclasses.asdict(original)))
    assert build(TrainConfig, stored) == original


@pytest.mark.parametrize("override", ["steps=7", "log_every=3", "checkpoint_every=9", "threads=1", "logger=mlflow"])
def test_the_name_does_not_depend_on_what_leaves_the_trajectory_alone(override: str) -> None:
    assert run_name(config(override)) == run_name(config())


@pytest.mark.parametrize(
    "override",
    [
        *("beta=0.06", "h=2e-3", "epsilon=2", "N=7", "delta=1e-4", "L=3", "seed=1", "split_seed=1", "kernel=dense"),
        *("drift=first_variation", "prox_potential=first_variation", "orientation=consistent", "tolerance=log"),
        *("rho0=uniform", "weights=uniform", "solver=literal", "dataset=sine", "device.dtype=float64"),
        "dataset.initial.w=[-2,2]",
    ],
)
def test_the_name_depends_on_everything_else(override: str) -> None:
    assert run_name(config(override)) != run_name(config())


def test_what_is_left_out_of_the_name_exists() -> None:
    assert set(NOT_TRAJECTORY) <= {field.name for field in dataclasses.fields(TrainConfig)}
