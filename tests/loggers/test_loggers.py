"""Loggers hold the same values as metrics.csv, whatever happened to the run; a run without a logger is unaffected."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import signal
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import yaml
from PIL import Image
from small_runs import FORKSERVER, assert_same_run, run, small

from proxlearn.cli import main
from proxlearn.config.compose import compose, parse
from proxlearn.config.run_name import digest
from proxlearn.config.schema import LoggerConfig, TrainConfig, build
from proxlearn.errors import InputError
from proxlearn.loggers import logger as logger_module
from proxlearn.run.config_validation import validate_config
from proxlearn.run.logger_session import log_session_end
from tests.loggers.reading import (
    Figures,
    assert_same,
    client,
    read_csv,
    read_events,
    read_mlflow,
    read_tensorboard,
    read_wandb,
)

LOGGERS = ("tensorboard", "mlflow")
LENGTH = {"steps": 23, "log_every": 4}


@pytest.fixture(autouse=True)
def _in_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", list(sys.argv))


def with_logger(name: str, **changes) -> TrainConfig:
    uri = "outputs/mlruns" if name == "mlflow" else None
    return small(logger=LoggerConfig(name, uri, None), **(LENGTH | changes))


def run_id(folder: Path) -> str:
    logged_metrics: str = json.loads((folder / "mlflow.json").read_text())["run_id"]
    return logged_metrics


def logged_metrics(name: str, folder: Path) -> Figures:
    """Return the metrics as the logger's own library reads them."""
    return (
        read_tensorboard(folder)
        if name == "tensorboard"
        else read_mlflow(Path("outputs/mlruns").absolute(), run_id(folder))
    )


def assert_logged(name: str, folder: Path) -> None:
    # TensorBoard's scalars are float32: metrics.csv rounded to that, and not a bit else.
    assert_same(logged_metrics(name, folder), read_csv(folder), np.float32 if name == "tensorboard" else np.float64)


@pytest.mark.parametrize("name", LOGGERS)
def test_a_command_leaves_metrics_config_and_plots(name: str, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    words = ["dataset=sine", "N=20", "steps=30", "threads=1", f"logger={name}", f"hydra.run.dir={folder}"]
    assert main(["train", *words]) == 0
    assert_logged(name, folder)
    plots = {path.stem: path for path in folder.glob("*.png")}
    assert {"risk", "health", "function"} <= plots.keys()
    if name == "tensorboard":
        read = read_events(folder)
        for plot, path in plots.items():
            (image,) = read.Images(plot)
            assert (image.step, image.encoded_image_string) == (30, path.read_bytes())
        (config,) = read.Tensors("config")
        lines = config.tensor_proto.string_val[0].decode().splitlines()
        assert {"    beta: 0.3", "    dataset.name: sine", "    steps: 30"} <= set(lines)
    else:
        store = client(tmp_path / "outputs" / "mlruns")
        logged_run = store.get_run(run_id(folder))
        assert logged_run.info.status == "FINISHED"
        assert logged_run.data.params["beta"] == "0.3"
        assert logged_run.data.params["dataset.name"] == "sine"
        assert logged_run.data.tags["proxlearn.steps"] == "30"
        assert store.get_experiment(logged_run.info.experiment_id).name == "proxlearn-sine"
        listed = {item.path for item in store.list_artifacts(run_id(folder), "plots")}
        assert listed == {f"plots/{path.name}" for path in plots.values()}
        assert "config.yaml" in {item.path for item in store.list_artifacts(run_id(folder))}


@pytest.mark.parametrize("name", LOGGERS)
def test_a_finished_run_can_be_told_later_and_again_and_has_everything_once(name: str, tmp_path: Path) -> None:
    run(small(**LENGTH), tmp_path / "run")
    Image.new("RGB", (4, 3)).save(tmp_path / "run" / "risk.png")
    for _ in range(2):
        log_session_end(with_logger(name).logger, tmp_path / "run", [tmp_path / "run" / "risk.png"])
        assert_logged(name, tmp_path / "run")
        if name == "tensorboard":
            (image,) = read_events(tmp_path / "run").Images("risk")
            assert (image.width, image.height, image.step) == (4, 3, 23)
            assert len(read_events(tmp_path / "run").Tensors("config")) == 1


@pytest.mark.parametrize("name", LOGGERS)
@pytest.mark.parametrize("first", [0, 12, 20])
def test_a_longer_run_logs_each_step_once(name: str, first: int, tmp_path: Path) -> None:
    uninterrupted, folder = tmp_path / "whole", tmp_path / "run"
    run(small(**LENGTH), uninterrupted)
    run(with_logger(name, steps=first), folder)
    run(with_logger(name), folder)
    assert_logged(name, folder)
    shutil.rmtree(folder / "tensorboard", ignore_errors=True)
    assert_same_run(folder, uninterrupted)


def test_a_last_row_off_the_schedule_stays_in_mlflow_and_leaves_tensorboard(tmp_path: Path) -> None:
    """metrics.csv drops the closing row of an extended run; MLflow cannot delete a logged value."""
    for name in LOGGERS:
        folder = tmp_path / name
        run(with_logger(name, steps=10), folder)
        assert_logged(name, folder)
        run(with_logger(name), folder)
        beyond = logged_metrics(name, folder).keys() - read_csv(folder).keys()
        assert {step for _, step in beyond} == ({10} if name == "mlflow" else set())
        assert all(len(values) == 1 for values in logged_metrics(name, folder).values())


@pytest.mark.parametrize("name", LOGGERS)
def test_a_killed_run_that_goes_on_has_each_step_once(name: str, tmp_path: Path) -> None:
    """The run was killed after rows that follow its last checkpoint; they are computed again, but logged once."""
    folder = tmp_path / "run"
    config = with_logger(name, steps=100_000, log_every=1, checkpoint_every=1_000_000)
    process = FORKSERVER.Process(target=run, args=(config, folder))
    process.start()
    for _ in range(1200):
        time.sleep(0.05)
        if not (folder / "metrics.csv").exists() or (folder / "metrics.csv").read_bytes().count(b"\n") <= 115:
            continue
        # Checkpoints are written by the clock, too: look at the newest one while the process cannot write another.
        os.kill(process.pid, signal.SIGSTOP)
        rows = (folder / "metrics.csv").read_bytes().count(b"\n") - 1
        newest = max(int(path.stem.split("-")[1]) for path in (folder / "checkpoints").glob("cloud-*"))
        if newest < rows - 2:
            break
        os.kill(process.pid, signal.SIGCONT)
    process.kill()
    process.join()
    logged = {step for _, step in logged_metrics(name, folder)}
    assert max(logged) > 110, "what was logged is in the store at once"
    assert newest < max(logged)
    run(with_logger(name, steps=max(logged) + 7, log_every=1, checkpoint_every=1_000_000), folder)
    assert_logged(name, folder)


@pytest.mark.parametrize("name", LOGGERS)
def test_a_logger_that_joins_late_or_lost_its_rows_has_them_all(name: str, tmp_path: Path) -> None:
    run(small(**LENGTH | {"steps": 12}), tmp_path)
    run(with_logger(name, steps=16), tmp_path)
    assert_logged(name, tmp_path)
    lost = tmp_path.glob("outputs/mlruns/[0-9]*") if name == "mlflow" else [tmp_path / "tensorboard"]
    for path in lost:
        shutil.rmtree(path)
    run(with_logger(name), tmp_path)
    assert_logged(name, tmp_path)


@pytest.mark.parametrize("name", LOGGERS)
def test_overwrite_begins_anew(name: str, tmp_path: Path) -> None:
    run(with_logger(name, seed=5, steps=30), tmp_path)
    before = run_id(tmp_path) if name == "mlflow" else ""
    run(with_logger(name, overwrite=True), tmp_path)
    assert_logged(name, tmp_path)
    assert name == "tensorboard" or run_id(tmp_path) != before


@pytest.mark.parametrize("name", LOGGERS)
def test_a_logger_changes_no_bit_and_no_name(name: str, tmp_path: Path) -> None:
    run(small(**LENGTH), tmp_path / "plain")
    run(with_logger(name), tmp_path / "run")
    assert_same_run(tmp_path / "run", tmp_path / "plain")
    assert digest(with_logger(name)) == digest(small(**LENGTH))


def test_runs_that_begin_together_share_one_experiment(tmp_path: Path) -> None:
    """This happens with the jobs of a sweep in a store that does not exist yet."""
    processes = [
        FORKSERVER.Process(target=run, args=(with_logger("mlflow", seed=seed, steps=2), tmp_path / str(seed)))
        for seed in range(4)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    store = client(tmp_path / "outputs" / "mlruns")
    assert sorted(item.name for item in store.search_experiments()) == ["Default", "proxlearn-sine"]
    logged_runs = store.search_runs([store.get_experiment_by_name("proxlearn-sine").experiment_id])
    assert {item.data.params["seed"] for item in logged_runs} == {"0", "1", "2", "3"}


@pytest.mark.parametrize("name", LOGGERS)
def test_a_missing_package_is_one_line_before_anything_is_made(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    original = importlib.util.find_spec
    monkeypatch.setattr("proxlearn.loggers.logger.find_spec", lambda item: None if item == name else original(item))
    assert main(["train", f"logger={name}"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert f"pip install 'proxlearn[{name}]'" in line
    assert list(tmp_path.iterdir()) == []


def in_a_new_process(config: TrainConfig, folder: Path) -> None:
    run(config, folder)
    log_session_end(config.logger, folder, [])
    sys.exit(sum(name in sys.modules for name in LOGGERS))


@pytest.mark.parametrize("name", ["csv", "tensorboard"])
def test_nothing_is_imported_of_a_logger_that_was_not_asked_for(name: str, tmp_path: Path) -> None:
    process = FORKSERVER.Process(target=in_a_new_process, args=(with_logger(name), tmp_path / "run"))
    process.start()
    process.join()
    assert process.exitcode == (name != "csv")
    names = {path.name for path in (tmp_path / "run").iterdir()}
    assert names & {"tensorboard", "mlflow.json"} == {name} - {"csv"}


WRONG = [
    (["logger=mlfow"], "did you mean `mlflow`?"),
    (["logger=csv", "logger.uri=here"], "unknown key `logger.uri`"),
    (["logger=mlflow", "logger.uri=null"], "try logger.uri=outputs/mlruns"),
    (["logger=mlflow", "logger.uri=sqlite:///x.db"], "pip install mlflow"),
]


@pytest.mark.parametrize("words, message", WRONG, ids=lambda value: " ".join(value) if isinstance(value, list) else "")
def test_wrong_words_are_one_line(
    words: list[str],
    message: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if "sqlite" in words[-1]:
        # Optuna brings sqlalchemy, with which a database is no mistake.
        monkeypatch.setattr(logger_module, "find_spec", lambda name: None if name == "sqlalchemy" else object())
    assert main(["train", *words]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert message in line
    assert list(tmp_path.iterdir()) == []


def test_a_store_that_fails_on_the_way_stops_no_run_and_gets_the_rest_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """The store is removed while the run uses it, and restored later."""
    from proxlearn.loggers.mlflow_run import MlflowLogger

    folder, store = tmp_path / "run", tmp_path / "outputs" / "mlruns"
    log_row = MlflowLogger.log_row

    def failing_log_row(self: MlflowLogger, row: dict) -> None:
        if row["step"] == 8:
            store.rename(tmp_path / "away")
            store.write_text("in the way")
        log_row(self, row)

    monkeypatch.setattr(MlflowLogger, "log_row", failing_log_row)
    assert run(with_logger("mlflow"), folder).state == "finished"
    assert capfd.readouterr().err.count("all rows are still written to metrics.csv") == 1
    monkeypatch.undo()
    os.chdir(tmp_path)
    store.unlink()
    (tmp_path / "away").rename(store)
    run(with_logger("mlflow", steps=31), folder)
    assert_logged("mlflow", folder)


@pytest.mark.parametrize("uri", ["https://elsewhere.invalid", "/elsewhere", "../elsewhere", "file:///elsewhere"])
def test_resume_follows_no_address_of_a_folder(uri: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(small(steps=3), tmp_path / "run")
    path = tmp_path / "run" / "config.yaml"
    path.write_text(path.read_text().replace("name: csv\n  uri: null", f"name: mlflow\n  uri: {uri}"))
    assert main(["resume", str(tmp_path / "run"), "--steps", "5"]) == 2
    assert "`proxlearn resume` logs only in the current folder" in capsys.readouterr().err


def test_resume_goes_on_in_the_same_mlflow_run(tmp_path: Path) -> None:
    run(with_logger("mlflow", steps=12), tmp_path / "run")
    before = run_id(tmp_path / "run")
    assert main(["resume", str(tmp_path / "run"), "--steps", "16"]) == 0
    assert run_id(tmp_path / "run") == before
    assert_logged("mlflow", tmp_path / "run")


def test_a_config_of_an_earlier_version_has_no_address() -> None:
    assert build(LoggerConfig, {"name": "csv"}) == LoggerConfig("csv", None, None)
    with pytest.raises(InputError, match=r"unknown key `logger\.url`"):
        build(LoggerConfig, {"name": "csv", "url": "x"}, "logger.")


@pytest.mark.parametrize("damage", ["torn", "garbage", "empty"])
def test_a_damaged_event_file_is_made_up_for(damage: str, tmp_path: Path) -> None:
    """The file ends with an incomplete record of a killed process, or is something else."""
    run(with_logger("tensorboard", steps=16), tmp_path)
    (path,) = (tmp_path / "tensorboard").iterdir()
    content = path.read_bytes()
    path.write_bytes({"torn": content[:-7], "garbage": b"garbage" * 100, "empty": b""}[damage])
    run(with_logger("tensorboard"), tmp_path)
    assert_logged("tensorboard", tmp_path)


def test_several_loggers_get_every_row_once_over_two_sessions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """wandb is offline by default: no account and no network are needed."""
    monkeypatch.delenv("WANDB_MODE", raising=False)
    folder = tmp_path / "run"
    for steps in (15, 30):
        words = ["dataset=sine", "N=8", f"steps={steps}", "log_every=5", "threads=1", f"hydra.run.dir={folder}"]
        assert main(["train", *words, "logger=[csv,tensorboard,wandb]"]) == 0, capsys.readouterr().err
    assert_logged("tensorboard", folder)
    state = json.loads((folder / "wandb.json").read_text())
    assert state["last_step"] == 30
    assert_same(read_wandb(tmp_path / "outputs" / "wandb", state["run_id"]), read_csv(folder))
    stored = build(TrainConfig, yaml.safe_load((folder / "config.yaml").read_text()))
    assert stored.logger.names == ("tensorboard", "wandb")


@pytest.mark.parametrize(
    "word, names",
    [("[csv]", ()), ("[mlflow, csv]", ("mlflow",)), ("[tensorboard,mlflow]", ("tensorboard", "mlflow")), ("csv", ())],
)
def test_a_list_of_loggers_is_composed_and_checked(word: str, names: tuple[str, ...]) -> None:
    config = validate_config(compose(parse([f"logger={word}"])))
    assert config.logger.names == names
    with pytest.raises(InputError, match=r"logger\.also cannot be 'tensorbord'"):
        validate_config(compose(parse(["logger=[mlflow,tensorbord]"])))
