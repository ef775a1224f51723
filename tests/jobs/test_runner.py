"""The job runner: a job that fails or dies does not affect the others, and nothing is computed twice."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path

import pytest
from small_runs import run, small

from proxlearn.errors import InputError
from proxlearn.jobs import job as job_module
from proxlearn.jobs.job import Job, JobBatch
from proxlearn.jobs.launchers import LocalPool, named_launcher
from proxlearn.jobs.records import JobRecords
from proxlearn.jobs.result_cache import ResultCache
from proxlearn.jobs.runner import run_jobs
from tests.jobs import targets


def square_jobs(folder: Path, count: int) -> list[Job]:
    return [
        Job(str(number), f"square of {number}", targets.square, (folder, number), identity={"number": number})
        for number in range(count)
    ]


def calls(folder: Path) -> dict[str, int]:
    return {path.stem: path.stat().st_size for path in folder.glob("*.calls")}


def launchers(folder: Path):
    yield LocalPool()
    yield LocalPool(parallel=3, threads=1)
    yield named_launcher("basic", [], folder)


@pytest.mark.parametrize("which", range(3))
def test_each_result_is_cached_and_the_same_call_again_runs_nothing(which: int, tmp_path: Path, capsys) -> None:
    launcher = list(launchers(tmp_path))[which]
    jobs, cache = square_jobs(tmp_path, 4), ResultCache(tmp_path / "results.jsonl")
    outcome = run_jobs(jobs, tmp_path / "jobs", launcher, cache=cache)
    assert (outcome.exit_code, outcome.signal, outcome.cached) == (0, None, frozenset())
    assert {record.state for record in outcome.records.values()} == {"finished"}
    expected = [{"square": number**2, "directory": str(Path.cwd())} for number in range(4)]
    for stored in (cache, ResultCache(tmp_path / "results.jsonl")):
        assert [stored.get(job.identity) for job in jobs] == expected
    assert "[4/4] finished  square of " in capsys.readouterr().err
    again = run_jobs(jobs, tmp_path / "jobs", launcher, cache=cache)
    assert (again.exit_code, again.cached, again.records) == (0, {"0", "1", "2", "3"}, {})
    assert calls(tmp_path) == {str(number): 1 for number in range(4)}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["joblib", "submitit_local"])
def test_results_come_back_from_other_launchers(name: str, tmp_path: Path) -> None:
    jobs, cache = square_jobs(tmp_path, 3), ResultCache(tmp_path / "results.jsonl")
    assert run_jobs(jobs, tmp_path / "jobs", named_launcher(name, [], tmp_path), cache=cache).exit_code == 0
    assert [cache.get(job.identity)["square"] for job in jobs] == [0, 1, 4]


def test_without_a_cache_the_results_are_in_the_records(tmp_path: Path) -> None:
    outcome = run_jobs([Job("one", "one", targets.square, (tmp_path, 3))], tmp_path / "jobs")
    assert outcome.records["one"].result["square"] == 9


def test_one_that_fails_or_dies_leaves_the_others_alone_and_is_run_again(tmp_path: Path) -> None:
    cache = ResultCache(tmp_path / "results.jsonl")
    names = ["raise_value_error", "raise_input_error", "kill_itself", "leave_python"]
    jobs = [Job(name, name, getattr(targets, name), identity={"name": name}) for name in names]
    jobs += square_jobs(tmp_path, 2)
    outcome = run_jobs(jobs, tmp_path / "jobs", LocalPool(2), cache=cache)
    assert outcome.exit_code == 1
    assert {name: (record.state, record.error) for name, record in outcome.failures.items()} == {
        "raise_value_error": ("failed", "ValueError: first line; see raise_value_error.log"),
        "raise_input_error": ("failed", "a problem; a remedy"),
        "kill_itself": ("killed", "its process was killed by SIGKILL"),
        "leave_python": ("failed", "its process ended with exit code 7; see leave_python.log"),
    }
    assert "Traceback" in (tmp_path / "jobs" / "raise_value_error.log").read_text()
    assert len(cache) == 2
    again = run_jobs(jobs, tmp_path / "jobs", LocalPool(2), cache=cache)
    assert again.cached == {"0", "1"}
    assert again.failures.keys() == set(names)


def test_fail_fast_skips_the_jobs_that_have_not_begun(tmp_path: Path) -> None:
    jobs = [Job("bad", "bad", targets.raise_value_error), *square_jobs(tmp_path, 2)]
    outcome = run_jobs(jobs, tmp_path / "jobs", fail_fast=True)
    assert {name: record.state for name, record in outcome.records.items()} == {
        "bad": "failed",
        "0": "skipped",
        "1": "skipped",
    }
    assert calls(tmp_path) == {}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize(
    "target, message", [(targets.wait_for_stop, "stopped at step 7"), (targets.exit_on_stop, "stopped")]
)
def test_a_signal_stops_the_jobs_and_the_same_call_completes_them(target, message, number, tmp_path: Path) -> None:
    ready, cache = tmp_path / "ready", ResultCache(tmp_path / "results.jsonl")
    jobs = [Job("long", "long", target, (ready,)), *square_jobs(tmp_path, 2)]

    def send() -> None:
        while not ready.exists():
            time.sleep(0.02)
        os.kill(os.getpid(), number)

    threading.Thread(target=send, daemon=True).start()
    outcome = run_jobs(jobs, tmp_path / "jobs", cache=cache)
    assert (outcome.signal, outcome.exit_code) == (number, 128 + number)
    assert {name: record.state for name, record in outcome.records.items()} == {
        "long": "stopped",
        "0": "skipped",
        "1": "skipped",
    }
    assert outcome.records["long"].error == message
    assert not list((tmp_path / "jobs").glob(".stop-*"))
    assert run_jobs(jobs[1:], tmp_path / "jobs", cache=cache).exit_code == 0


def test_a_result_that_a_killed_command_left_behind_is_collected(tmp_path: Path) -> None:
    jobs, cache = square_jobs(tmp_path, 2), ResultCache(tmp_path / "results.jsonl")
    records = JobRecords(tmp_path / "jobs")
    records.write("0", "finished", "an earlier session", key=jobs[0].key, result={"square": 0})
    # The same name with another identity: not this job's result.
    records.write("1", "finished", "an earlier session", key=jobs[0].key, result={"square": 99})
    outcome = run_jobs(jobs, tmp_path / "jobs", cache=cache)
    assert (outcome.exit_code, outcome.cached) == (0, {"0"})
    assert [cache.get(job.identity)["square"] for job in jobs] == [0, 1]
    assert calls(tmp_path) == {"1": 1}


def test_a_job_waits_while_another_process_has_its_folder(tmp_path: Path, monkeypatch) -> None:
    job = Job("one", "one", targets.find_folder_in_use, (tmp_path, 2))
    assert run_jobs([job], tmp_path / "jobs").records["one"].result == {"calls": 3}


def test_a_pool_hands_its_threads_to_each_job(tmp_path: Path) -> None:
    outcome = run_jobs([Job("one", "one", targets.thread_count)], tmp_path / "jobs", LocalPool(threads=3))
    assert outcome.records["one"].result in ({"threads": 3}, {"threads": 1})


def test_a_failing_cache_stops_the_jobs_and_is_raised(tmp_path: Path, monkeypatch) -> None:
    cache = ResultCache(tmp_path / "results.jsonl")

    def fail(identity, result) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(cache, "put", fail)
    with pytest.raises(OSError, match="No space"):
        run_jobs(square_jobs(tmp_path, 2), tmp_path / "jobs", cache=cache)


def test_what_cannot_be_sent_to_a_process_is_told_once(tmp_path: Path, capsys) -> None:
    outcome = run_jobs([Job("one", "one", lambda: None)], tmp_path / "jobs")
    assert (outcome.exit_code, outcome.records) == (1, {})
    assert capsys.readouterr().err.count("the launcher failed (") == 1


def test_two_jobs_of_one_name_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="the same name"):
        run_jobs([Job("one", "one", targets.thread_count)] * 2, tmp_path / "jobs")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("steps, message", [(5, "stopped at step 5"), (None, "stopped before its first step")])
def test_a_stopped_job_is_recorded_with_the_step_that_its_run_had_reached(
    steps, message, tmp_path: Path, monkeypatch
) -> None:
    folder, records = tmp_path / "run", JobRecords(tmp_path / "jobs")
    if steps is not None:
        run(small(steps=steps), folder)
    job = Job("0", "a test", targets.thread_count, run_folder=folder)
    batch = JobBatch((job,), (tmp_path,), records.folder, "one", Path.cwd(), 1, False, (), {})

    def end_process(*args, **kwargs):
        """Simulate a process that was ended by a second SIGTERM."""
        records.request_stop("one")
        return -signal.SIGTERM

    monkeypatch.setattr(job_module, "run_in_subprocess", end_process)
    batch.supervise(0)
    record = records.read("0")
    assert (record.state, record.error) == ("stopped", message)
