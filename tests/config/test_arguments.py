"""Overrides as users type them: names with any characters, and the words that messages suggest.

A user's folder of configs is checked in bounded time and memory, whatever it contains.
"""

from __future__ import annotations

import os
import re
import shlex
import time
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from proxlearn.cli import main
from proxlearn.commands.train import preflight
from proxlearn.config.arguments import hydra_arguments, prepare_override
from proxlearn.config.compose import compose, parse
from proxlearn.config.config_folders import MAX_BYTES, MAX_DEPTH, MAX_NODES, check_config_folder
from proxlearn.errors import InputError
from proxlearn.printable_text import override_word, quote_literal
from tests.conftest import config_of

CHARACTERS = st.text(st.sampled_from("ab1 \\'\"${}()[],=~#!:*?%&|;<>@ü日.-"), min_size=1, max_size=10)
NAMES = CHARACTERS | st.text(st.characters(exclude_categories=("Cs", "Cc", "Cf", "Zl", "Zp")), min_size=1, max_size=8)
ODD_NAMES = [
    *("my file (1).csv", "Blood Pressure (mm)", "a=b.csv", "it's", 'q"q', "a#b", "a!b", "{x}", "[x].csv", "üñ", "a;b"),
    *("a\\", "\\", '\\"', "1.50", "1e5", "1_000", "true", "null", "f(x)", "-x", "(", "range(3)", "${beta}", "\\${h}"),
]


def value_of(word: str, key: str) -> object:
    """Return the value that a command-line word gives to a key of the dataset."""
    composed = compose(parse([word]))
    return composed.dataset[key]


@settings(max_examples=150, deadline=None)
@given(NAMES.filter(lambda name: name != "???"))
def test_a_suggested_word_means_its_text_whatever_characters_it_has(name: str) -> None:
    (word,) = shlex.split(override_word("dataset.target", name))
    key, _, value = word.partition("=")
    assert prepare_override(word) == word
    assert (key, value[:1] in ('"', name[:1])) == ("dataset.target", True)
    assert parsed_text(word) == name


def parsed_text(word: str) -> object:
    """Return the same value without composing a config: by Hydra's parser, then OmegaConf's resolution."""
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from omegaconf import OmegaConf

    override = OverridesParser.create().parse_override(prepare_override(word))
    return OmegaConf.create({"text": override.value()}).text


@pytest.mark.parametrize("name", ODD_NAMES)
def test_a_suggested_word_reaches_the_config_as_it_is(name: str) -> None:
    (word,) = shlex.split(override_word("dataset.target", name))
    assert value_of(word, "target") == name


PLAINLY_READ = [name for name in ODD_NAMES if name not in ("null", "range(3)", "${beta}", "\\${h}")]


@pytest.mark.parametrize("key", ["dataset.path", "dataset.target"])
@pytest.mark.parametrize("name", PLAINLY_READ)
def test_file_and_column_names_need_no_quotes_of_hydras(key: str, name: str) -> None:
    assert parsed_text(f"{key}={name}") == name


@settings(max_examples=100, deadline=None)
@given(NAMES)
@example("a,b.csv")
@example("${x")
def test_any_name_is_taken_as_typed_or_refused_with_a_word_that_works(name: str) -> None:
    try:
        word = prepare_override(f"dataset.path={name}")
    except InputError as error:
        (suggested,) = shlex.split(re.search(r"write (.*) for one name", str(error))[1])  # type: ignore[index]
        assert parsed_text(suggested) == name
    else:
        assert prepare_override(word) == word


def test_a_run_with_odd_names_trains_with_the_suggested_word(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    rows = "\n".join(f"{i},{i % 3},{'yes' if i % 2 else 'no'}" for i in range(20))
    (tmp_path / "my file, 2.csv").write_text(f"a,b,Blood Pressure (mm)\n{rows}\n")
    words = ["dataset=csv", "N=5", "steps=1", "threads=1", "compile=off", "hydra.run.dir=run (1) ~#"]
    words += ["dataset.target=Blood Pressure (mm)"]
    assert main(["train", *words, "dataset.path=my file, 2.csv"]) == 2
    suggested = re.search(r"write (.*) for one name", capsys.readouterr().err)
    assert suggested is not None
    assert main(["train", *words, *shlex.split(suggested[1])]) == 0
    assert (tmp_path / "run (1) ~#" / "metrics.csv").is_file()


@pytest.mark.parametrize(
    "word, message",
    [
        ("beta=0,05", "write beta=0.05, or add -m"),
        ("steps=1,000", "write steps=1000, or add -m"),
        ("beta=(3)", "beta must be a finite number > 0, got '(3)'"),
        ("beta=.05 h=3", "beta must be a finite number > 0, got '.05 h=3'"),
        ("beta = 3", "leave out the spaces: beta=3"),
        ("my.csv", "dataset=csv dataset.path=my.csv dataset.target=COLUMN"),
        ("dataset=my data.csv", "dataset=csv 'dataset.path=\"my data.csv\"' dataset.target=COLUMN"),
        ("wdbc", "write dataset=wdbc"),
        ("beta", "write beta=VALUE"),
        ("--beta=3", "`proxlearn train` has no option --beta; write beta=3"),
        ("--confg-name=x", "did you mean `--config-name`?"),
        ("dataset.path=${x}.csv", "write 'dataset.path=\"\\${x}.csv\"' for literal text"),
        ("beta=${x}", "beta=${x} refers to a key or variable that does not exist"),
        ("dataset.initial.w=[-1,1", "got '[-1,1'; try 'dataset.initial.w=[-1,1]'"),
        ("=5", "`=5` is not of the form key=value; write key=value"),
        ("x/" * 3000, "is not of the form key=value; write key=value"),
    ],
)
def test_a_malformed_override_is_answered_with_a_correct_one(word: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        preflight([word])
    assert message in str(caught.value)


def test_the_values_of_a_sweep_are_separated() -> None:
    assert prepare_override("dataset.target=1.50,true,x", is_sweep=True) == 'dataset.target="1.50","true",x'
    with pytest.raises(InputError, match="quote each value") as caught:
        prepare_override("dataset.path=a (1).csv,b.csv", is_sweep=True)
    (word,) = shlex.split(str(caught.value).partition("quote each value: ")[2])
    assert word == f"dataset.path={quote_literal('a (1).csv')},{quote_literal('b.csv')}"
    assert prepare_override(word, is_sweep=True) == word


def test_flags_may_stand_between_overrides() -> None:
    assert hydra_arguments(["beta=1", "--cfg", "job", "h=3"]) == ["--cfg", "job", "beta=1", "h=3"]


HOMES = ["~/runs (1)", '"~/runs (1)"']


@pytest.mark.parametrize("typed", HOMES)
def test_home_is_expanded_in_every_folder(typed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "jo (x)"))
    home = f"{tmp_path}/jo (x)/runs (1)"
    composed = compose(parse([f"hydra.run.dir={typed}", f"hydra.sweep.dir={typed}"]))
    assert (composed.hydra.run.dir, composed.hydra.sweep.dir) == (home, home)
    with pytest.raises(InputError, match=re.escape(f"init_from='{home}' contains no valid checkpoint")):
        config_of(f"init_from={typed}")


def test_home_keeps_the_interpolations_behind_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert compose(parse(["hydra.run.dir=~/runs/${seed}", "seed=7"])).hydra.run.dir == f"{tmp_path}/runs/7"


def test_home_is_expanded_for_data_and_configs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    assert main(["train", "dataset=csv", "dataset.target=y", "dataset.path=~/x.csv"]) == 2
    assert f"the file {tmp_path}/x.csv does not exist" in capsys.readouterr().err
    (tmp_path / "configs" / "recipe").mkdir(parents=True)
    (tmp_path / "configs" / "recipe" / "mine.yaml").write_text(
        "# @package _global_\ndefaults: [paper]\nrecipe: mine\nbeta: -7\n"
    )
    with pytest.raises(InputError, match="beta must be"):
        preflight(["--config-dir=~/configs", "recipe=mine"])


def test_the_home_of_a_user_who_does_not_exist_is_no_traceback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for key in ("dataset.path", "init_from", "hydra.run.dir", "hydra.sweep.dir"):
        assert main(["train", "dataset=csv", f"{key}=~no-such-user/x"]) == 2
        (line,) = (line for line in capsys.readouterr().err.splitlines() if "no-such-user" in line)
        assert line.startswith("proxlearn: ")


@pytest.mark.parametrize("key", ["dataset.path", "init_from", "hydra.run.dir", "hydra.sweep.dir"])
def test_an_address_is_refused_whole(key: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=r"must be a path on this machine, got the URL https://example\.org/a\.csv"):
        preflight(["dataset=csv", f"{key}=https://example.org/a.csv"])
    assert list(tmp_path.iterdir()) == []


LEVELS = [f"a{level}: &a{level} [{', '.join([f'*a{level - 1}'] * 9)}]" for level in range(1, 12)]
MERGES = [f"a{level}: &a{level} {{b{level}: *a{level - 1}, <<: *a{level - 1}}}" for level in range(1, 30)]
BOMBS = {
    "aliases": "\n".join(["a0: &a0 [x]", *LEVELS]),
    "merges": "\n".join(["a0: &a0 {x: 1}", *MERGES]),
    "itself": "a: &a [*a]",
    "deep": "a: " + "[" * 5000 + "]" * 5000,
    "deep_blocks": "\n".join("  " * level + "a:" for level in range(MAX_DEPTH + 5)),
    "long": "a: [" + "1, " * MAX_BYTES + "1]",
    "many": "a: [" + "1," * (MAX_NODES + 1) + "1]",
    "binary": "\0\1\2",
}
SECONDS = 8.0
"""The bomb of aliases took more than 30; the machine may be busy."""


@pytest.mark.parametrize("name", BOMBS)
def test_a_config_that_would_not_load_in_bounded_time_is_refused(name: str, tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(BOMBS[name])
    started = time.process_time()
    with pytest.raises(InputError, match=r"mine\.yaml cannot be read as YAML"):
        check_config_folder(str(tmp_path))
    assert time.process_time() - started < SECONDS


def test_what_is_not_a_regular_file_is_refused_unread(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    fifo = tmp_path / "folder" / "mine.yaml"
    os.mkfifo(fifo)
    with pytest.raises(InputError, match="not a regular file"):
        check_config_folder(str(tmp_path))
    fifo.unlink()
    fifo.symlink_to("/dev/zero")
    with pytest.raises(InputError, match="not a regular file"):
        check_config_folder(str(tmp_path))
    fifo.unlink()
    fifo.symlink_to(tmp_path / "nothing")
    with pytest.raises(InputError, match="No such file"):
        check_config_folder(str(tmp_path))


def test_linked_folders_are_looked_through_once(tmp_path: Path) -> None:
    configs, elsewhere = tmp_path / "configs", tmp_path / "elsewhere"
    configs.mkdir()
    elsewhere.mkdir()
    (configs / "again").symlink_to(configs)
    (configs / "recipe").symlink_to(elsewhere)
    (elsewhere / "mine.yaml").write_text("beta: 7\n")
    check_config_folder(str(configs))
    (elsewhere / "mine.yaml").write_text("_target_: os.mkdir\n")
    with pytest.raises(InputError, match="_target_ is not allowed because Hydra would import"):
        check_config_folder(str(configs))


def test_a_folder_that_is_no_folder_of_configs_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("proxlearn.config.config_folders.MAX_ENTRIES", 5)
    for number in range(6):
        (tmp_path / f"{number}.txt").touch()
    with pytest.raises(InputError, match="give a folder that contains only configs"):
        check_config_folder(str(tmp_path))
    with pytest.raises(InputError, match=r"the folder .* does not exist"):
        check_config_folder(str(tmp_path / "nothing"))


VALUES = st.recursive(
    st.integers() | st.booleans() | st.text(st.characters(codec="ascii", exclude_categories=("Cc",)), max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=20,
)


@settings(max_examples=30, deadline=None)
@given(values=VALUES)
def test_any_file_of_values_is_accepted(values: object, tmp_path_factory: pytest.TempPathFactory) -> None:
    import yaml

    folder = tmp_path_factory.mktemp("configs")
    (folder / "mine.yaml").write_text(yaml.safe_dump([values, values]))
    check_config_folder(str(folder))


def test_a_few_aliases_are_welcome(tmp_path: Path) -> None:
    (tmp_path / "recipe").mkdir()
    text = "# @package _global_\ndefaults: [paper]\nrecipe: mine\nbeta: &x 7\nh: *x\n"
    (tmp_path / "recipe" / "mine.yaml").write_text(text)
    preflight(["--config-dir", str(tmp_path), "dataset=sine", "recipe=mine"])


def test_interpolations_of_interpolations_are_bounded(tmp_path: Path) -> None:
    keys = ["a", *(f"a{level}" for level in range(40))]
    chain = "\n".join(f'{key}: "${{{below}}}${{{below}}}"' for key, below in zip(keys[1:], keys, strict=False))
    (tmp_path / "recipe").mkdir()
    text = f"# @package _global_\ndefaults: [paper]\nrecipe: mine\na: x\n{chain}\n"
    (tmp_path / "recipe" / "mine.yaml").write_text(text)
    with pytest.raises(InputError, match="too many interpolations"):
        preflight(["--config-dir", str(tmp_path), "dataset=sine", "recipe=mine"])
