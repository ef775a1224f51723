"""Random command lines for folders with files of other programs: no such file is changed, and there is no traceback."""

import random
import shutil
from pathlib import Path

import pytest

from proxlearn.cli import main
from tests.small_runs import FULL, run, small

pytestmark = pytest.mark.faults

COUNT = 500 if FULL else 30
CHUNKS = 4 if FULL else 1
NAMES = [
    *("metrics.csv", "model.json", "status.json", "config.yaml", "points.csv", "accuracy.csv", "accuracy.md"),
    *("selection.json", "train.log", "risk.png", "risk.pdf", "mlflow.json", ".lock", ".notes.tmp", ".draft.12.tmp"),
    *("report.html", "film.gif", "sweep.yaml", "summary.csv", "summary.md", "jobs/0.json", "jobs/0.log", "notes.txt"),
    *(
        "checkpoints/cloud-000000000.safetensors",
        "checkpoints/mine",
        "tensorboard/events.out.tfevents.1",
        "x/config.yaml",
    ),
    *(".hydra/config.yaml", "sweeps/mine.csv", "multirun.yaml", ".proxlearn-notes.txt"),
]
CONTENTS = [b"", b"mine\n", b"a,b\n1,2\n", b"{}", b'{"state": "finished"}', b"dataset: mine\nlr: 1\n", b"\x00\xff" * 40]
SMALL = ["dataset=sine", "N=8", "dataset.points=10", "threads=1", "steps=1"]


def commands(draw: random.Random, run_folder: Path) -> list[str]:
    overwrite = draw.choice([[], ["overwrite=true"]])
    new = draw.choice(["new.html", "deep/none/new.html"])
    return draw.choice(
        [
            ["train", *SMALL, *overwrite, "hydra.run.dir=F"],
            ["train", *SMALL, *overwrite, "hydra.run.dir=F/../F"],
            ["train", *SMALL, *overwrite, "hydra.run.dir=F", f"init_from={run_folder}"],
            ["train", *SMALL, *overwrite, "hydra.run.dir=F", "hydra.output_subdir=.hydra"],
            ["train", *SMALL, "dataset.path=F/points.csv", "hydra.run.dir=F"],
            ["train", *SMALL, "init_from=F", "hydra.run.dir=elsewhere"],
            ["train", "-m", *SMALL, *overwrite, "hydra.sweep.dir=.", "hydra.sweep.subdir=F"],
            ["train", "-m", *SMALL, *overwrite, "seed=0,1", "hydra.sweep.dir=F", "hydra.sweep.subdir=x"],
            ["train", "-m", *SMALL, *overwrite, "seed=0,1", "hydra.run.dir=F"],
            ["train", *SMALL, "--cfg", "job"],
            ["resume", "F"],
            ["resume", "F", "--steps", "9"],
            ["status", "F"],
            ["status", "."],
            ["plot", "F"],
            ["report", "F"],
            ["report", str(run_folder), "-o", f"F/{new}"],
            ["film", "F"],
            ["predict", "F", "--data", "rows.csv", "-o", "F/new.csv"],
            ["predict", str(run_folder), "--data", "rows.csv", "-o", "F/new.csv"],
            ["evaluate", "F", "--data", "rows.csv"],
            ["compare", "--dataset", "nosuch", "--output", "F"],
        ]
    )


@pytest.fixture(scope="module")
def run_folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("made")
    run(small(steps=1), folder)
    return folder


def contents(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_no_file_of_another_program_is_changed(chunk, run_folder, tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    Path("rows.csv").write_text("x\n0.5\n")
    for seed in range(chunk, COUNT, CHUNKS):
        draw = random.Random(seed)
        shutil.rmtree("F", ignore_errors=True)
        for name in draw.sample(NAMES, draw.randint(1, 9)):
            Path("F", name).parent.mkdir(parents=True, exist_ok=True)
            Path("F", name).write_bytes(draw.choice(CONTENTS))
        args, before = commands(draw, run_folder), contents(tmp_path)
        try:
            code = main(args)
        except SystemExit as ending:
            code = ending.code
        except BaseException as error:
            raise AssertionError(f"seed {seed}: {args!r}, {list(before)}") from error
        after, stderr = contents(tmp_path), capfd.readouterr().err
        assert code in (0, 1, 2), (seed, args)
        assert "Traceback" not in stderr, (seed, args, stderr)
        assert {path: after.get(path) for path in before} == before, (seed, args)
        if code == 2:
            assert after == before, (seed, args)
