"""What is recorded of a job whose process was ended before it could record that itself."""

import signal
from pathlib import Path

import pytest
from small_runs import run, small

from proxlearn.run.sweep_folder import SweepFolder
from proxlearn.sweeps import job


@pytest.mark.parametrize("steps, said", [(5, "stopped at step 5"), (None, "stopped before its first step")])
def test_a_stopped_job_is_recorded_with_the_step_that_its_run_had_reached(steps, said, tmp_path, monkeypatch):
    sweep, folder = SweepFolder(tmp_path / "sweep"), tmp_path / "run"
    sweep.create("a test", [])
    if steps is not None:
        run(small(steps=steps), folder)
    task = job.SweepJob(sweep.path, "one", (0,), (folder,), (tmp_path,), "a test", Path.cwd(), 1, False, {})

    def ended(*args, **kwargs):
        """Stands for a process that a second SIGTERM has ended."""
        sweep.request_stop("one")
        return -signal.SIGTERM

    monkeypatch.setattr(job, "run_in_subprocess", ended)
    for name in job.THREAD_LIMITS:
        monkeypatch.setenv(name, "1")
    task.supervise(0)
    record = sweep.read_record(0)
    assert (record.state, record.error) == ("stopped", said)
