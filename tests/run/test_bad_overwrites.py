"""overwrite=true with random bad input is rejected in one line, and the old run stays byte for byte the same."""

import random
import shutil
from pathlib import Path

import pytest
from small_runs import FULL

from proxlearn.cli import main

pytestmark = pytest.mark.faults

COUNT = 200 if FULL else 10
CHUNKS = 4 if FULL else 1
ROWS = [f"{i % 9},{(i * 7) % 11},{'ab'[i % 2]}" for i in range(40)]
TABLE = "\n".join(["x,y,label", *ROWS, ""])
GOOD = ["beta=3", "seed=4", "h=0.01", "N=9", "weights=uniform", "kernel=log", "split_seed=3", "steps=7", "recipe=tuned"]

BAD_TABLES = {
    "empty": "",
    "header only": "x,y,label\n",
    "ragged": TABLE + "1,2\n",
    "text": TABLE.replace("3,10,b", "three,10,b"),
    "one class": TABLE.replace(",b", ",a"),
    "no number": "\n".join(f"{row.split(',')[0]},,{row[-1]}" for row in ["x,y,label", *ROWS]),
    "infinite": TABLE + "inf,1,a\n",
    "bytes": "\udcff\udcfe" * 50,
    "zero bytes": "\0" * 300,
    "two equal names": TABLE.replace("x,y", "x,x"),
}
BAD_WORDS = [
    *(["dataset.path=nofile.csv"], ["dataset.path=."], ["dataset.path=/dev/null"], ["dataset.path=R"]),
    *(["dataset.target=nosuch"], ["dataset.target=null"], ["dataset.task=regression"], ["dataset.task=nosuch"]),
    *(["dataset.neuron=nosuch"], ["dataset.neuron=softmax_regression"]),
    *(["N=1000000000"], ["N=1e12"], ["N=0"], ["N=many"], ["N=100000000", "kernel=log"], ["N=100000", "kernel=dense"]),
    *(["init_from=nofolder"], ["init_from=."], ["init_from=R", "N=31"], ["init_from=other", "N=12"]),
    *(["init_from=damaged"], ["dataset.path=R/points.csv"], ["dataset.path=R/metrics.csv"], ["dataset=nosuch"]),
    *(["beta=-1"], ["h=nan"], ["steps=-1"], ["threads=0"], ["betta=1"], ["solver=literal", "weights=uniform"]),
    *(["logger=mlflow", "logger.uri=null"], ["hydra.output_subdir=x"], ["hydra.sweep.dir=x"], ["device.dtype=float16"]),
    *(["~dataset.initial.w"], ["dataset.initial.w=[1,-1]"], ["dataset.scaling=nosuch"], ["dataset.train_fraction=2"]),
]


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A finished run R, another one of a different shape, a damaged one, and the tables."""
    folder = tmp_path_factory.mktemp("place")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        Path("my.csv").write_text(TABLE)
        words = ["train", "dataset=csv", "dataset.path=my.csv", "dataset.target=label", "steps=3", "threads=1"]
        assert main([*words, "N=12", "hydra.run.dir=R"]) == 0
        assert main(["train", "dataset=sine", "N=12", "steps=1", "threads=1", "hydra.run.dir=other"]) == 0
        shutil.copytree("other", "damaged")
        for path in Path("damaged/checkpoints").iterdir():
            path.write_bytes(path.read_bytes()[:-9])
        Path("R/notes.txt").write_text("mine")
    return folder


def contents(folder):
    return {path: path.read_bytes() if path.is_file() else None for path in folder.rglob("*")}


def command_line(draw: random.Random) -> list[str]:
    """Draw a command line with one kind of bad input among valid words."""
    table = draw.choice([None, None, *BAD_TABLES])
    if table is not None:
        Path("bad.csv").write_text(BAD_TABLES[table], errors="surrogateescape")
        bad = ["dataset.path=bad.csv"]
    else:
        bad = draw.choice(BAD_WORDS)
    keys = {word.partition("=")[0] for word in bad}
    good = [word for word in draw.sample(GOOD, draw.randint(0, 3)) if word.partition("=")[0] not in keys]
    if keys & {"init_from", "~dataset.initial.w"}:
        # recipe=tuned draws a normal cloud, for which the box plays no role.
        good = [word for word in good if not word.startswith(("N=", "recipe="))]
    words = ["dataset=csv", "dataset.path=my.csv", "dataset.target=label", "N=12", "steps=5", "threads=1"]
    words = [word for word in words if word.partition("=")[0] not in {w.partition("=")[0] for w in good + bad}]
    return [*words, *good, *bad, "hydra.run.dir=R", "overwrite=true"]


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_an_overwrite_with_bad_input_leaves_the_old_run_as_it_was(chunk, place, monkeypatch, capfd):
    monkeypatch.chdir(place)
    before = contents(place / "R")
    for seed in range(chunk, COUNT, CHUNKS):
        args = command_line(random.Random(seed))
        try:
            code = main(["train", *args])
        except BaseException as error:
            raise AssertionError(f"seed {seed}: {args!r}") from error
        said = capfd.readouterr().err
        assert code == 2, (seed, args, said)
        assert "Traceback" not in said, (seed, args)
        assert contents(place / "R") == before, (seed, args)
    assert {path.name for path in place.iterdir()} <= {"my.csv", "bad.csv", "R", "other", "damaged"}
