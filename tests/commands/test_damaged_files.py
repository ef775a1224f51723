"""Damaged and forged files in every command that reads a folder or a table: a result, or an error of one line."""

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
from proxlearn.data import user_table
from proxlearn.errors import InputError
from tests.damage import cut, damaged_copy, flip, insert, replace
from tests.small_runs import FULL, composed, run
from tests.views.report.pages import plane_run, sweep_of

pytestmark = pytest.mark.faults

COUNT = 3000 if FULL else 300
CHUNKS = 6
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


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_every_reader_answers_or_refuses_in_one_line(
    chunk: int, folders: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for seed in range(chunk, COUNT, CHUNKS):
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
        stderr = [line for line in stderr if not line.endswith("dataset.task=... to change this")]
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
    for seed in range(COUNT):
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
