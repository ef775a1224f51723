"""The hyperparameters are declared once; config schema, fit settings and step follow from the fields."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from dataclasses import asdict, dataclass, fields, replace
from types import ModuleType
from typing import Any, Generic

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxlearn.config.run_name import run_name
from proxlearn.config.schema import TrainConfig, config_values
from proxlearn.core import hyper
from proxlearn.core.hyper import (
    BLIND_KAPPA,
    Hyper,
    Hyperparameters,
    Number,
    blind_step_notice,
    energy_share,
    hyperparameter,
    kappa_sentence,
)
from proxlearn.errors import InputError
from proxlearn.run.experiment import settings_from_config
from proxlearn.training.settings import Settings
from proxlearn.validators import real
from tests.conftest import config_of

PAPER = Hyper(beta=0.05, h=1e-3, epsilon=1.0)


def test_the_defaults_are_the_papers_readings() -> None:
    assert settings_from_config(config_of("dataset=wdbc", "recipe=paper")).hyper == PAPER


def test_checking_a_config_does_not_import_torch() -> None:
    code = "import sys, proxlearn.core.hyper, proxlearn.config.schema; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_config_and_settings_have_every_hyperparameter() -> None:
    names = {field.name for field in fields(Hyperparameters)}
    assert names | {"noise_scale"} == {field.name for field in fields(Hyper)}
    assert names <= {field.name for field in fields(TrainConfig)}
    assert {field.name for field in fields(Hyper)} <= {field.name for field in fields(Settings)}


@dataclass(frozen=True, kw_only=True)
class WithMomentum(Hyperparameters[Number], Generic[Number]):
    """The hyperparameters with an additional one."""

    momentum: float = hyperparameter(real(at_least=0, below=1, example=0.5), 0.0)


@dataclass(frozen=True, kw_only=True)
class HyperWithMomentum(Hyper, WithMomentum[float]):
    pass


def load_again(module: str) -> ModuleType:
    """Return a second instance of a module, which sees the patched hyperparameters."""
    spec = importlib.util.find_spec(module)
    assert spec is not None
    assert spec.loader is not None
    copy = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(copy)
    return copy


def test_a_new_field_is_a_key_of_the_config_and_reaches_the_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hyper, "Hyperparameters", WithMomentum)
    monkeypatch.setattr(hyper, "Hyper", HyperWithMomentum)
    schema, settings = load_again("proxlearn.config.schema"), load_again("proxlearn.training.settings")
    values = config_values(config_of())
    with pytest.raises(InputError, match="lacks the key `momentum`"):
        schema.build(schema.TrainConfig, values)
    config = schema.build(schema.TrainConfig, values | {"momentum": 0.3})
    assert config.momentum == 0.3
    assert list(schema.config_values(config)) == [*values, "momentum"]
    assert run_name(config) != run_name(replace(config, momentum=0.4))
    with pytest.raises(InputError, match=r"momentum must be a finite number >= 0 and < 1, got 1\.5"):
        schema.build(schema.TrainConfig, values | {"momentum": 1.5})
    fit = settings.Settings(beta=1.0, h=0.1, epsilon=1.0, momentum=0.3)
    assert fit.hyper.momentum == 0.3


@pytest.mark.parametrize(
    "values",
    [
        *({"beta": 0.0}, {"h": -1.0}, {"epsilon": float("nan")}, {"L": 0}, {"delta": -1e-9}, {"drift": "papers"}),
        *({"epsilon_quantile": 1.0}, {"batch_size": 0}, {"horizon": 0}, {"noise_scale": -1.0}, {"beta": None}),
    ],
)
def test_a_value_outside_its_range_is_refused_by_its_name(values: dict[str, Any]) -> None:
    PAPER.check()
    (name,) = values
    with pytest.raises(InputError, match=name):
        Hyper(**asdict(PAPER) | values).check()


def test_beta_h_and_epsilon_may_be_open_in_a_config_only() -> None:
    tuned = settings_from_config(config_of("recipe=tuned"))
    assert (tuned.beta, tuned.h, tuned.epsilon) == (None, None, None)
    with pytest.raises(AssertionError, match="beta"):
        tuned.hyper  # noqa: B018


@given(st.floats(1e-3, 1e6), st.floats(1e-3, 1e6))
def test_the_share_of_the_energy_falls_with_kappa_and_the_notice_follows_it(first: float, second: float) -> None:
    low, high = sorted((first, second))
    assert 1 > energy_share(low) >= energy_share(high) > 0
    for kappa in (low, high):
        notice, sentence = blind_step_notice(kappa), kappa_sentence(kappa)
        assert (notice is None) == (kappa <= BLIND_KAPPA) == ("not the risk" not in sentence)
        for text in (notice or "", sentence):
            assert "\n" not in text
            assert len(text) < 180


def test_the_papers_wdbc_has_kappa_50_and_gets_one_line() -> None:
    assert blind_step_notice(PAPER.kappa) == (
        "kappa = beta epsilon / h = 50: the proximal step cannot see the risk (its share in the weights is about 0.04; "
        "with kappa <= 1 it can)"
    )
