"""Following a remedy resolves its error, and no remedy suggests a value that is already set."""

from __future__ import annotations

import dataclasses
import re
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxlearn.cli import main
from proxlearn.commands.train import preflight
from proxlearn.config import schema
from proxlearn.config.key_suggestions import suggest_key
from proxlearn.errors import InputError
from tests.conftest import config_of

FIELDS = {
    prefix + field.name: schema.setting_check(field)
    for prefix, cls in (("", schema.TrainConfig), *((f"{name}.", cls) for name, cls in schema.SECTIONS.items()))
    for field in dataclasses.fields(cls)
    if field.name not in schema.SECTIONS
}
WRONG = st.one_of(
    st.integers(),
    st.sampled_from([2**32, 2**63, 2**64, 2**70, -(2**70), 10**400, 1e400, -1e400, 1e308]),
    st.floats(),
    st.text(max_size=8),
    st.lists(st.integers(), max_size=3),
    st.booleans(),
    st.dictionaries(st.sampled_from("abw"), st.lists(st.floats(), max_size=3), max_size=2),
)


def suggested_values(remedy: str) -> list[tuple[str, str]]:
    """Return the key=value words of a remedy, with the first value of `key=a|b`."""
    words = re.findall(r"(?:^|[ (])('[\w.+]+=[^']*'|[\w.+]+=[^\s,;]+)", remedy)
    pairs = [shlex.split(word)[0].partition("=") for word in words]
    return [(key, value.split("|")[0]) for key, _, value in pairs]


@settings(max_examples=300, deadline=None)
@given(key=st.sampled_from(sorted(FIELDS)), value=WRONG)
def test_the_remedy_of_every_check_passes_that_check(key: str, value: Any) -> None:
    error = refusal(key, value)
    if error is None:
        return
    assert len(str(error)) < 400
    (suggested, text), *_ = suggested_values(error.remedy)
    # A block of dataset.initial has its own name.
    assert suggested.startswith(key)
    FIELDS[key](key, parsed(text) if suggested == key else {suggested.rpartition(".")[2]: parsed(text)})


def refusal(key: str, value: Any) -> InputError | None:
    try:
        FIELDS[key](key, value)
    except InputError as error:
        return error
    return None


def parsed(text: str) -> Any:
    from hydra.core.override_parser.overrides_parser import OverridesParser

    return OverridesParser.create().parse_override(f"key={text}").value()


@pytest.mark.parametrize("key", ["seed", "split_seed", "threads", "N", "steps", "dataset.points"])
def test_a_number_that_is_too_large_is_told_the_largest(key: str) -> None:
    for value in (2**70, "2**70", 10**400):
        with pytest.raises(InputError) as caught:
            FIELDS[key](key, value)
        largest = int(re.search(r"<= (\d+)", str(caught.value))[1])  # type: ignore[index]
        assert FIELDS[key](key, largest) == largest
        with pytest.raises(InputError):
            FIELDS[key](key, largest + 1)


def test_every_leaf_of_one_section_is_found_by_its_name_alone() -> None:
    leaves = [key.partition(".")[2] for key in schema.ALL_KEYS if key.partition(".")[0] in schema.SECTIONS]
    for key in schema.ALL_KEYS:
        leaf = key.partition(".")[2]
        roots = schema.TrainConfig.__dataclass_fields__
        if key.partition(".")[0] in schema.SECTIONS and leaves.count(leaf) == 1 and leaf not in roots:
            assert suggest_key(leaf, schema.ALL_KEYS) == f"did you mean `{key}`?"


@pytest.mark.parametrize(
    "key, remedy",
    [
        ("path", "did you mean `dataset.path`?"),
        ("target", "did you mean `dataset.target`?"),
        ("test_fraction", "did you mean `dataset.train_fraction`?"),
        ("dataset.dtype", "did you mean `device.dtype`?"),
        ("n", "did you mean `N`?"),
        ("lr", "did you mean `h`?"),
        ("epochs", "did you mean `steps`?"),
        ("name", "did you mean `dataset.name` or `logger.name`?"),
        ("device.dtypes", "did you mean `device.dtype`?"),
        ("device.foo", "choose from device.device, device.dtype, device.fallback_dtype"),
        ("device.threads", "it is now called `threads`"),
        ("dataset.paper", "it is now called `dataset.default_hyperparameters`"),
        ("hydra.rundir", "did you mean `hydra.run.dir`?"),
        ("xyzzy", "`proxlearn train --cfg job` lists all keys"),
    ],
)
def test_an_unknown_key_is_answered_with_the_key_that_is_meant(key: str, remedy: str) -> None:
    for word in (f"{key}=1", f"+{key}=1") if not key.startswith("hydra") else (f"{key}=1",):
        with pytest.raises(InputError) as caught:
            config_of(word)
        assert str(caught.value) == f"unknown key `{key}`; {remedy}"


ALREADY_SET = [
    ["dataset=csv", "dataset.target=y"],
    ["dataset=csv", "dataset.path=one.csv", "dataset.target=y", "dataset.split=shuffled", "dataset.train_fraction=0.1"],
    ["dataset=csv", "dataset.path=one.csv", "dataset.target=y", "dataset.split=file_order", "split_seed=1"],
    ["dataset=csv", "dataset.path=one.csv", "dataset.target=y", "dataset.points=5"],
    ["dataset=csv", "dataset.path=one.csv", "dataset.target=y", "dataset.scaling=paper"],
    ["dataset=csv", "dataset.path=one.csv", "dataset.target=y", "dataset.task=regression"],
    ["dataset=csv", "dataset.path=one.csv", "dataset.target=y", "dataset.task=binary"],
    ["dataset=csv", "dataset.path=one.csv", "dataset.target=y", "dataset.neuron=tanh"],
    ["dataset=csv", "dataset.path=one.csv"],
    ["dataset=sine", "dataset.path=one.csv"],
    ["dataset=sine", "dataset.points=null"],
    ["recipe=tuned", "init=box"],
    ["recipe=paper", "steps=null"],
    ["logger=mlflow", "logger.uri=null"],
    ["dataset.initial=5"],
    ["dataset.initial.w=[1,0]"],
    ["solver=literal", "weights=uniform"],
]


@pytest.mark.parametrize("words", ALREADY_SET, ids=" ".join)
def test_no_remedy_names_what_is_set_already(words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from proxlearn.run.experiment import build_experiment, first_checkpoint

    monkeypatch.chdir(tmp_path)
    rows = "\n".join(f"{i},{i * i % 7},{'cab'[(i >= 10) + (i >= 18)]}" for i in range(20))
    (tmp_path / "one.csv").write_text(f"a,b,y\n{rows}\n")

    def problem(words: list[str]) -> InputError | None:
        try:
            preflight(words)
            experiment = build_experiment(config_of(*words))
            if not experiment.config.selected:
                first_checkpoint(experiment)
        except InputError as error:
            return error
        return None

    error = problem(words)
    assert error is not None
    for key, value in suggested_values(error.remedy):
        if "leave" in error.remedy or "drop" in error.remedy or value == "...":
            continue
        assert f"{key}={value}" not in words
        filled = {"FILE": "one.csv", "COLUMN": "y"}.get(value, value)
        after = problem([*(word for word in words if not word.startswith(f"{key}=")), f"{key}={filled}"])
        assert after is None or after.problem != error.problem


# Extreme numbers through the commands: a run that can predict and be drawn, or one line.
RUN = ["train", "dataset=csv", "dataset.path=my.csv", "dataset.target=label", "N=8", "steps=4", "threads=1"]


def write_table(feature: float, target: float | None) -> None:
    """Write two features, the first ``feature`` times as large, and classes or a target ``target`` times as large."""
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(2, 40))
    label = np.where(a > 0, "yes", "no") if target is None else target * a
    pd.DataFrame({"a": feature * a, "b": b, "label": label}).to_csv("my.csv", index=False)


@pytest.mark.parametrize(
    "feature, target", [(1e200, None), (1e-200, None), (1.0, 1e200), (1.0, 1e-200), (1e301, None), (1.0, 1e301)]
)
def test_a_table_of_extreme_numbers_predicts_and_is_drawn_or_is_refused_by_its_column(
    feature, target, tmp_path, monkeypatch, capfd
):
    monkeypatch.chdir(tmp_path)
    write_table(feature, target)
    code = main([*RUN, "hydra.run.dir=run"])
    said = capfd.readouterr().err
    if code == 2:
        assert "column `" in said
        assert not Path("run").exists()
        return
    assert code == 0, said
    assert main(["predict", "run", "--data", "my.csv", "-o", "out.csv"]) == 0
    numbers = pd.read_csv("out.csv").select_dtypes("number")
    assert np.isfinite(numbers.to_numpy()).all()
    for command in (["plot", "run"], ["report", "run", "-o", "page.html"]):
        assert main(command) == 0, capfd.readouterr().err


@pytest.mark.parametrize(
    "words, code, said",
    [
        (["dataset.initial.w=[-1e308,1e308]"], 2, "dataset.initial.w must be two numbers"),
        (["device=jetson-float32-to-float64", "h=1e30", "steps=60"], 1, "is not finite after step"),
    ],
)
def test_settings_that_overflow_are_one_line(words, code, said, tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    write_table(1.0, None)
    assert main([*RUN, *words, "hydra.run.dir=run"]) == code
    message = capfd.readouterr().err
    assert said in message.splitlines()[-1]
    assert "Traceback" not in message
