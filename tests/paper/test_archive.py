"""The archive: a packed run gives the same results as its folder to the last bit, and the same runs the same bytes."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from proxlearn.core.cloud import PointCloud
from proxlearn.errors import InputError
from proxlearn.paper.archive import Archive
from proxlearn.paper.archive_files import PackedRun, TextTable, read_packed_runs, write_packed_runs
from proxlearn.paper.archive_packing import pack_run, pack_runs
from proxlearn.paper.run_plan import PlannedRun, plan_entry
from proxlearn.paper.training_runs import planned_config, train_run
from proxlearn.predict.model import load_model
from proxlearn.views.run.run_data import read_run_data


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> dict[str, PlannedRun]:
    """One run of each of two kinds: with points and a cloud, and with classes."""
    root = tmp_path_factory.mktemp("paper")
    runs = {}
    for entry in ("table5-pdf", "table2"):
        run = plan_entry(entry).runs(root, quick=True)[0]
        train_run(planned_config(run), run.folder, run.command)
        runs[entry] = run
    return runs


@pytest.mark.parametrize("entry", ["table5-pdf", "table2"])
def test_what_comes_out_is_what_the_run_folder_holds(trained: dict[str, PlannedRun], entry: str, tmp_path) -> None:
    run = trained[entry]
    archive = Archive(tmp_path)
    pack_runs(archive, [run])
    (archived,), data = Archive(tmp_path).runs(entry), read_run_data(run.folder)
    pd.testing.assert_frame_equal(archived.metrics, data.metrics, check_exact=True)
    assert archived.packed.config == data.config
    assert archived.status == {key: data.status[key] for key in archived.status}
    assert {"state", "step", "steps", "seconds", "versions", "data_sha256", "command"} <= set(archived.status)
    assert not {"pid", "host"} & set(archived.status)
    if entry == "table2":
        assert data.confusion is not None
        pd.testing.assert_frame_equal(archived.confusion, data.confusion, check_exact=True)
        assert not archived.clouds
    else:
        pd.testing.assert_frame_equal(archived.points, data.points, check_exact=True)
        x = np.linspace(-3, 3, 7)[:, None]
        for estimate, f in load_model(run.folder).values(x).items():
            assert (archived.model(50).values(x)[estimate] == f).all()


def test_packing_twice_changes_no_byte_and_the_order_of_runs_does_not_matter(
    trained: dict[str, PlannedRun], tmp_path: Path
) -> None:
    packed = pack_run(trained["table5-pdf"])
    assert packed.points is not None
    others = [PackedRun(f"table5/N{N}-seed{seed}", packed.status, packed.config, packed.metrics, points=packed.points)
              for N in (500, 2000) for seed in (2, 10)]  # fmt: skip
    for folder, runs in (("a", [packed, *others]), ("b", [*reversed(others), packed])):
        write_packed_runs(tmp_path / folder, runs)
    write_packed_runs(tmp_path / "c", read_packed_runs(tmp_path / "a").values())
    contents = [{path.name: path.read_bytes() for path in (tmp_path / name).iterdir()} for name in "abc"]
    assert contents[0] == contents[1] == contents[2]
    assert set(contents[0]) == {"runs.jsonl", "metrics.csv", "points.csv", "clouds.safetensors"}
    names = [json.loads(line)["run"] for line in contents[0]["runs.jsonl"].splitlines()]
    assert names == [*(run.name for run in others), packed.name]
    long_table = pd.read_csv(tmp_path / "a" / "metrics.csv")
    assert len(long_table) == 5 * len(packed.metrics.rows)
    assert len(contents[0]["points.csv"].splitlines()) == 1 + len(packed.points.rows), "shared points are stored once"


CELLS = st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"]), max_size=8)


@given(st.lists(st.lists(CELLS, min_size=2, max_size=2), max_size=5), st.lists(CELLS, max_size=3))
def test_texts_survive_and_a_column_that_a_run_lacks_is_empty(tmp_path_factory, rows, more) -> None:
    folder = tmp_path_factory.mktemp("texts")
    first = PackedRun("e/1", {}, {}, TextTable(("step", "a"), (("0", ""), *(tuple(row) for row in rows))))
    second = PackedRun("e/2", {}, {}, TextTable(("step", "b"), (("0", "x"), *(("1", cell) for cell in more))))
    write_packed_runs(folder, [first, second])
    stored = read_packed_runs(folder)
    assert stored["e/1"].metrics.columns == ("step", "a", "b")
    assert [row[:2] for row in stored["e/1"].metrics.rows] == list(first.metrics.rows)
    assert all(row[2] == "" for row in stored["e/1"].metrics.rows)
    assert [(row[0], row[2]) for row in stored["e/2"].metrics.rows] == list(second.metrics.rows)


@given(st.sampled_from([torch.float32, torch.float64]), st.integers(1, 5), st.integers(1, 10**6))
def test_clouds_keep_their_bits_and_their_precision(tmp_path_factory, dtype, N, step) -> None:
    folder = tmp_path_factory.mktemp("clouds")
    cloud = PointCloud(torch.randn(N, 3, dtype=dtype), torch.randn(N, dtype=dtype), step)
    write_packed_runs(folder, [PackedRun("e/1", {}, {}, TextTable(("step",), (("0",),)), clouds={step: cloud})])
    (stored,) = read_packed_runs(folder)["e/1"].clouds.values()
    assert stored.step == step
    assert (stored.theta.dtype, stored.log_rho.dtype) == (dtype, torch.float64)
    assert torch.equal(stored.theta, cloud.theta)
    assert torch.equal(stored.log_rho, cloud.log_rho)


def test_a_run_is_packed_when_it_is_finished_and_never_replaced_by_an_unfinished_one(
    trained: dict[str, PlannedRun], tmp_path: Path
) -> None:
    run, archive = trained["table2"], Archive(tmp_path)
    status = run.folder / "status.json"
    content = status.read_text()
    values = json.loads(content)
    try:
        for state in ("running", "stopped", "failed"):
            status.write_text(json.dumps(values | {"state": state}))
            pack_runs(archive, [run])
            assert archive.runs("table2") == []
        # An archive may hold an unfinished run, which says so; its finished run takes its place.
        unfinished = replace(pack_run(run), status=values | {"state": "stopped", "step": 5})
        archive.add("table2", [unfinished])
        status.write_text(content)
        pack_runs(archive, [run])
        assert [archived.status["state"] for archived in archive.runs("table2")] == ["finished"]
        status.write_text(json.dumps(values | {"state": "stopped", "step": 10**6}))
        pack_runs(archive, [run])
        assert [archived.status["state"] for archived in archive.runs("table2")] == ["finished"]
    finally:
        status.write_text(content)


def test_a_run_folder_that_cannot_be_read_is_reported_and_does_not_stop_the_others(tmp_path: Path, capsys) -> None:
    runs = plan_entry("fig5").runs(tmp_path, quick=True)
    for run in runs:
        train_run(planned_config(run), run.folder, run.command)
    (runs[0].folder / "metrics.csv").write_text("step\n")
    archive = Archive(tmp_path)
    pack_runs(archive, runs)
    assert [archived.name for archived in archive.runs("fig5")] == ["fig5/seed1"]
    assert "fig5/seed0 was not packed: " in capsys.readouterr().err


@pytest.mark.parametrize(
    "name, content, message",
    [
        ("runs.jsonl", b"{\n", "it is not a table of runs"),
        ("runs.jsonl", b'{"run": "table2/x", "format": "proxlearn-paper-run-9"}\n', "newer version"),
        ("metrics.csv", b"run,step\n", "there is no entry for 'table2/"),
        ("clouds.safetensors", b"no clouds", "it does not contain clouds"),
    ],
)
def test_a_damaged_archive_is_named(trained: dict[str, PlannedRun], tmp_path: Path, name, content, message) -> None:
    pack_runs(Archive(tmp_path), [trained["table2"]])
    (tmp_path / "table2" / name).write_bytes(content)
    with pytest.raises(InputError, match=message):
        Archive(tmp_path).runs("table2")


def test_a_folder_of_other_files_is_foreign_and_an_empty_one_is_not(tmp_path: Path) -> None:
    assert not Archive(tmp_path / "absent").is_foreign()
    assert not Archive(tmp_path).is_foreign()
    (tmp_path / "thesis.tex").write_text("mine")
    assert Archive(tmp_path).is_foreign()
