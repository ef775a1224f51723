"""Random command lines through composition and validation: accepted or rejected in one line, never a traceback.

Damaged and forged files in every command that reads a folder or a table: a result, or an error of one line.
"""

from __future__ import annotations

import json
import random
import shutil
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from proxlearn.cli import main
from proxlearn.commands.train import preflight
from proxlearn.config.schema import DatasetConfig, DeviceConfig, TrainConfig
from proxlearn.data import user_table
from proxlearn.errors import InputError
from tests.damage import cut, damaged_copy, flip, insert, replace
from tests.small_runs import FULL, composed, run
from tests.views.report.pages import plane_run, sweep_of

pytestmark = pytest.mark.faults

COUNT = 2000 if FULL else 200
CHUNKS = 10

KEYS = [
    *(key for key in TrainConfig.__dataclass_fields__),
    *(f"dataset.{key}" for key in DatasetConfig.__dataclass_fields__),
    *(f"device.{key}" for key in DeviceConfig.__dataclass_fields__),
    *("dataset", "device", "logger", "recipe", "logger.name", "dataset.initial.a", "dataset.initial.w[0]"),
    *("hydra.run.dir", "hydra.run", "hydra", "hydra.mode", "hydra.verbose", "hydra.job.chdir", "hydra.sweep.dir"),
    *("hydra.callbacks", "hydra.launcher", "hydra/launcher", "hydra.job_logging", "hydra.searchpath", "hydra.job.name"),
    *("hydra.output_subdir", "hydra.runtime.output_dir", "hydra.help", "hydra.sweeper.params", "hydra.job.env_set.A"),
    *("betta", "Beta", "β", "", ".", "..", "a.b.c", "dataset.", ".dataset", "dataset..name", "0", "[0]", "_target_"),
    *("dataset@device", "dataset@", "/dataset", "../dataset", "dataset/wdbc", "key with space", "k\u0000", "defaults"),
]
VALUES = [
    *("0", "1", "-1", "7", "0.05", "1e-3", "1e6", "1e308", "1e309", "-1e309", "1e-400", "nan", "inf", "-inf", "-0.0"),
    *("9" * 30, "9" * 400, "-" + "9" * 400, "9" * 5000, "1.0", "1.5", "0x10", "1_000", "1__0", "+5", "٣", "½", "１"),
    *("null", "true", "false", "yes", "None", "~", "???", "", "''", '""', "a", "abc", "wdbc", "sine", "cpu", "cuda"),
    *("float32", "float64", "log", "dense", "paper", "literal", "closed_form", "uniform", "pdf", "csv", "consistent"),
    *("[]", "{}", "[1,2]", "[1,[2,[3]]]", "{a:1}", "{a:{b:{c:[1,2]}}}", "[-1,1]", "[1,-1]", "[nan,1]", "[1e400,2]"),
    *("{a:[0,1],b:[0,1],w:[0,1]}", "{_target_:os.system}", "{1:2}", "{null:1}", "{true:[0,1]}", "[" * 60 + "]" * 60),
    *("1,2,3", "range(1,5)", "choice(1,2)", "glob(*)", "sort(3,1)", "shuffle(1,2)", "int(5)", "int(x)", "str(1)"),
    *(
        "float(nan)",
        "bool(2)",
        "extend_list(1)",
        "interval(0,1)",
        "tag(a,1)",
        "nosuch(1)",
        "json_str(1)",
        "range(1,2,0)",
    ),
    *(
        "${beta}",
        "${nosuch}",
        "${beta",
        "${oc.env:HOME}",
        "${oc.env:NO_SUCH}",
        "${h}",
        "${dataset}",
        "${.beta}",
        "${..}",
    ),
    *(
        "${proxlearn.run_name:}",
        "${hydra:run.dir}",
        "${nosuch:1}",
        "${oc.decode:'[1'}",
        "${oc.create:{a:1}}",
        "$",
        "${}",
    ),
    *(
        "a b",
        "a\\",
        "'a",
        '"a',
        "a=b",
        "a:b",
        "a,b",
        "a#b",
        "é",
        "日本",
        "\u202e",
        "\ud800",
        "\x1b[31m",
        "\n",
        "a\tb",
        "\0",
    ),
    *("/", ".", "..", "~", "/proc", "/dev/null", "/no/such/folder", "x" * 300, "x/" * 3000, "../..", "a\0b", "con"),
    *("RUN", "MULTIRUN", "mine", "@", "%s", "{x", "x}", "(", ")", "!!python/object:os", "&a", "*a", "|", ">", "- a"),
]
GOOD = [
    *(
        "beta=0.05",
        "N=30",
        "steps=1e6",
        "h=1e-3",
        "epsilon=2",
        "delta=0",
        "L=10",
        "seed=3",
        "split_seed=4",
        "threads=2",
    ),
    *("log_every=null", "log_every=10", "checkpoint_every=7", "keep_checkpoints=1", "overwrite=true", "init_from=null"),
    *(
        "kernel=dense",
        "drift=first_variation",
        "weights=uniform",
        "rho0=pdf",
        "tolerance=log",
        "orientation=consistent",
    ),
    *("device=cpu", "device.dtype=float64", "dataset=wdbc", "dataset.initial.w=[-2,2]", "++beta=1", "recipe=paper"),
    *(
        "hydra.run.dir=mine",
        "hydra.verbose=true",
        "hydra.job.name=mine",
        "beta=${epsilon}",
        "beta=float(3)",
        "seed=7.0",
    ),
]
FLAGS = [
    *("-m", "--multirun", "--cfg", "--resolve", "--info", "--config-name=nosuch", "--config-dir=/no/such", "--nosuch"),
    *(
        "--config-name=",
        "-cn",
        "--package",
        "-x",
        "--",
        "--run",
        "train",
        "dataset",
        "=",
        "==",
        "~",
        "+",
        "++",
        "~beta",
    ),
]


def command_line(draw: random.Random) -> list[str]:
    """Draw one to four words: mostly overrides, some of them valid, sometimes a flag or random characters."""
    args = ["dataset=sine"] if draw.random() < 0.7 else []
    for _ in range(draw.randint(1, 4)):
        kind = draw.random()
        if kind < 0.5:
            args.append(draw.choice(GOOD))
        elif kind < 0.54:
            args.append(draw.choice(FLAGS))
        elif kind < 0.58:
            args.append(
                "".join(chr(draw.choice((draw.randrange(1, 128), draw.randrange(1, 0x3000)))) for _ in range(9))
            )
        else:
            prefix = draw.choice(("", "", "", "", "", "+", "++", "~"))
            args.append(f"{prefix}{draw.choice(KEYS)}={draw.choice(VALUES)}")
    return args


def verdict(args: list[str]) -> int:
    """Return the exit code of a command line without running it."""
    try:
        preflight(args)
    except InputError as error:
        return error.exit_code if "\n" not in str(error) else -1
    except SystemExit as ending:
        # argparse ends the process for an unknown flag.
        return ending.code
    return 0


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_any_command_line_is_accepted_or_refused_in_one_line(chunk, tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    codes = []
    for seed in range(chunk, COUNT, CHUNKS):
        args = command_line(random.Random(seed))
        try:
            codes.append(verdict(args))
        except BaseException as error:
            raise AssertionError(f"seed {seed}: {args!r}") from error
    assert set(codes) == {0, 2}
    assert "Traceback" not in capfd.readouterr().err
    assert not list(tmp_path.iterdir())


pytestmark = pytest.mark.faults

COUNT_DAMAGED_FILES = 3000 if FULL else 300
CHUNKS_DAMAGED_FILES = 6
QUICK = 3 if FULL else 12
"""Draws of the commands that take a tenth of a second for each of those that draw or train."""
NOTICES = ("is treated as", "skipping the checkpoint", "is not drawn")
SECONDS = 120
"""A draw that takes longer waits for something."""


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs of one and two features and of a selection, a sweep, and the tables that they read."""
    folder = tmp_path_factory.mktemp("whole")
    for name in ("plane", "sweep"):
        (folder / name).mkdir()
    plane_run(folder / "plane", ("no", "yes")).rename(folder / "two")
    shutil.copyfile(folder / "plane" / "mine.csv", folder / "two.csv")
    run(composed("dataset=sine", "N=8", "dataset.points=10", "threads=1", "steps=12", "compile=off"), folder / "one")
    columns = json.loads((folder / "one" / "model.json").read_text())["columns"]
    (folder / "one.csv").write_text(f"{','.join(columns)}\n0.5\n")
    sweep_of(folder / "sweep", [{"beta": "0.1"}, {"beta": "0.4"}])
    return folder


def command(draw: random.Random, name: str, damaged: Path, table: Path, output: Path) -> list[str]:
    views = [["status", damaged], ["report", damaged, "-o", output / "page.html"], ["plot", damaged]]
    if name == "sweep":
        words = draw.choice(views[:2] * QUICK + views[2:])
        return [words[0], str(damaged / "sweeps" / "mine"), *map(str, words[2:])]
    # Drawing takes a second where the others take a tenth.
    quick = [*views[:2], ["predict", damaged, "--data", table], ["evaluate", damaged, "--data", table]] * QUICK
    slow = [views[2], ["film", damaged, "-o", output / "film.gif", "--frames", "1"], ["resume", damaged]]
    return [str(word) for word in draw.choice(quick + slow)]


@contextmanager
def time_limit(what: str) -> Iterator[None]:
    def late(number: int, frame: object) -> None:
        raise AssertionError(f"it waits: {what}")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("chunk", range(CHUNKS_DAMAGED_FILES))
def test_every_reader_answers_or_refuses_in_one_line(
    chunk: int, folders: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for seed in range(chunk, COUNT_DAMAGED_FILES, CHUNKS_DAMAGED_FILES):
        draw = random.Random(seed)
        name = draw.choice(("one", "two", "two", "sweep"))
        damaged = tmp_path / str(seed)
        what = damaged_copy(draw, folders / name, damaged)
        words = command(draw, name, damaged, folders / f"{'two' if name == 'sweep' else name}.csv", tmp_path)
        try:
            with time_limit(f"seed {seed}: {what}: {words}"):
                code = main(words)
        except Exception as error:
            raise AssertionError(f"seed {seed}: {what}: {words}") from error
        stderr = [line for line in capsys.readouterr().err.splitlines() if line.startswith("proxlearn: ")]
        # A notice about the table, which comes before the folder is read.
        stderr = [
            line for line in stderr if not line.endswith("to change this, set dataset.task=... or, with `fit`, --task")
        ]
        assert code in (0, 2), f"seed {seed}: {what}: {words}: {code} {stderr}"
        # A run that goes on tells what it took the target for, and which checkpoints it skipped, before it is refused.
        refusals = [line for line in stderr if not any(word in line for word in NOTICES)]
        assert code == 0 or len(refusals) == 1, f"seed {seed}: {what}: {words}: {stderr}"
        shutil.rmtree(damaged)


def test_every_table_is_read_or_refused(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(30, 2)), rng.integers(0, 2, 30)
    rows = "\n".join(f"{a},{b},{c}" for (a, b), c in zip(X.tolist(), y.tolist(), strict=True))
    (tmp_path / "whole.csv").write_text(f"a,b,y\n{rows}\n")
    np.savez(tmp_path / "whole.npz", X=X, y=y)
    np.savez_compressed(tmp_path / "small.npz", X=X, y=y)
    config = composed("dataset=csv", "dataset.path=x.csv", "dataset.target=y").dataset
    for seed in range(COUNT_DAMAGED_FILES):
        draw = random.Random(seed)
        source = draw.choice(("whole.csv", "whole.npz", "small.npz"))
        path = tmp_path / f"damaged{Path(source).suffix}"
        shutil.copyfile(tmp_path / source, path)
        draw.choice((cut, flip, flip, insert, replace))(draw, path)
        try:
            user_table.load(type(config)(**{**vars(config), "path": str(path)}))
        except InputError:
            continue
        except Exception as error:
            raise AssertionError(f"seed {seed}: {source}") from error
