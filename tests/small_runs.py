"""Helper functions of the tests: short runs, processes that start fast, empty pictures, and a comparison of two runs.

Importing torch and the package takes more time than most runs. Except in tests of imports, every process that a test
starts is therefore forked from a server that has already imported them. Each test process has one such server.
"""

import json
import multiprocessing
import multiprocessing.forkserver
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from proxlearn.config.compose import compose, parse
from proxlearn.config.schema import TrainConfig
from proxlearn.run.checkpoint_file import list_checkpoints
from proxlearn.run.config_validation import validate_config
from proxlearn.run.observed_status import Outcome
from proxlearn.run.train import train

FULL = os.environ.get("PROXLEARN_FAULTS") == "full"
"""Whether all cases of the fault tests are run (`make test-faults`); `make test` runs a sample of them."""

FORKSERVER = multiprocessing.get_context("forkserver")
PRELOAD = (
    *("tests.small_runs", "small_runs", "hypothesis", "optuna", "pytest", "sklearn.datasets"),
    *("sklearn.calibration", "sklearn.ensemble", "sklearn.linear_model", "sklearn.svm"),
    *("proxlearn.cli", "proxlearn.commands.train", "proxlearn.run.train", "proxlearn.views.run.run_views"),
    *("proxlearn.baselines.proxlearn_networks", "proxlearn.compare.measure", "proxlearn.verify.plan"),
    *("proxlearn.sweeps.search", "proxlearn.sweeps.sweep"),
    *("proxlearn.core.fused.fused_step", "proxlearn.core.fused.sharded_step", "proxlearn.paper.repeated_fits"),
)
"""Modules that the server imports, even if it is first started by a command that sets another list of modules."""


def share_server() -> None:
    """Fork all child processes of this test process from one server, which also imports this module."""
    server = multiprocessing.forkserver._forkserver
    start = type(server).ensure_running

    # Two threads of a test may start processes at the same time.
    lock = threading.Lock()

    def ensure_running() -> None:
        server.set_forkserver_preload(list(PRELOAD))
        here = Path(__file__).parent
        with lock:
            paths = os.environ.get("PYTHONPATH")
            os.environ["PYTHONPATH"] = os.pathsep.join([str(here.parent), str(here), *([paths] if paths else [])])
            try:
                start(server)
            finally:
                del os.environ["PYTHONPATH"]
                if paths is not None:
                    os.environ["PYTHONPATH"] = paths

    server.ensure_running = ensure_running


share_server()

PLAIN = "plain pictures"
"""Name of a setting that child processes inherit. If it is true, pictures are written without their content."""


def set_plain_pictures(value: bool) -> None:
    multiprocessing.current_process()._config[PLAIN] = value


def render_plainly_if_set() -> None:
    """Patch ``savefig`` to write empty pictures if the setting ``PLAIN`` is true, because rendering takes seconds."""
    render = Figure.savefig

    def savefig(self: Figure, target: Any, **options: Any) -> None:
        # Only the plots of proxlearn are saved with metadata.
        is_plain = "metadata" in options and multiprocessing.current_process()._config.get(PLAIN)
        render(Figure(self.get_size_inches()) if is_plain else self, target, **options)

    if render.__name__ != render_plainly_if_set.__name__:
        savefig.__name__ = render_plainly_if_set.__name__
        Figure.savefig = savefig


render_plainly_if_set()


def _run_in(folder: Path, environment: Mapping[str, str], paths: Sequence[str], output: str, work: Any) -> None:
    """Call ``work[0](*work[1:])`` in the given folder and environment, with the output streams redirected to files."""
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    sys.path[:0] = paths
    for number, name in enumerate((os.devnull, output, f"{output}.err")):
        handle = os.open(name, os.O_RDWR | os.O_CREAT)
        os.dup2(handle, number)
        os.close(handle)
    sys.stdin, sys.stdout, sys.stderr = (os.fdopen(n, "w" if n else "r", closefd=False) for n in range(3))
    work[0](*work[1:])


def run_console(words: Sequence[str]) -> None:
    """Run a command as ``python -m proxlearn`` does."""
    from proxlearn import __file__ as package
    from proxlearn import cli

    sys.argv = [str(Path(package).with_name("__main__.py")), *words]
    cli.console()


def execute(code: str) -> None:
    """Run a program as ``python -c`` does."""
    exec(compile(code, "<string>", "exec"), {"__name__": "__main__"})


def in_new_process(
    work: Callable[..., None],
    *args: Any,
    cwd: Path | None = None,
    env: Mapping[str, str] = os.environ,
    paths: Sequence[str] = (),
) -> subprocess.CompletedProcess[str]:
    """Call ``work(*args)`` in a process that has already imported the package; ``paths`` come first in sys.path."""
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder, "output")
        call = (cwd or Path.cwd(), dict(env), list(paths), str(output), (work, *args))
        process = FORKSERVER.Process(target=_run_in, args=call)
        process.start()
        process.join()
        printed = [path.read_text() for path in (output, Path(f"{output}.err"))]
        return subprocess.CompletedProcess(args, process.exitcode, *printed)


def proxlearn(*words: str, **where: Any) -> subprocess.CompletedProcess[str]:
    """Run ``python -m proxlearn`` in a process that has already imported the package."""
    return in_new_process(run_console, words, **where)


@cache
def composed(*overrides: str) -> TrainConfig:
    return validate_config(compose(parse(list(overrides))))


def small(*overrides: str, **changes) -> TrainConfig:
    """Return the config of a sine run with eight particles; ``changes`` are fields of the config that are replaced."""
    base = composed("dataset=sine", "N=8", "dataset.points=10", "threads=1", "checkpoint_every=5", *overrides)
    return replace(base, **changes)


def run(config: TrainConfig, folder: Path) -> Outcome:
    return train(config, folder, "a test")


def status(folder: Path) -> dict:
    return json.loads((folder / "status.json").read_text())


def assert_same_run(folder: Path, reference: Path) -> None:
    """Assert that two runs are equal bit for bit: the checkpoints of the reference, the metrics and the status."""
    assert (folder / "metrics.csv").read_bytes() == (reference / "metrics.csv").read_bytes()
    checkpoints = {step: path.read_bytes() for step, path in list_checkpoints(folder / "checkpoints")}
    for step, path in list_checkpoints(reference / "checkpoints"):
        assert checkpoints[step] == path.read_bytes(), f"checkpoint {step} differs"
    assert (folder / "accuracy.csv").read_bytes() == (reference / "accuracy.csv").read_bytes()
    for key in ("state", "step", "switched_at", "unmet", "dtype"):
        assert status(folder)[key] == status(reference)[key], key
    leftovers = [path for path in folder.rglob(".*") if path.is_file()]
    assert not leftovers, leftovers
