"""Free memory: the value reported by the system, the rest of a cgroup's limit, and the limit set by the user.

Closed, full or unread standard streams, or a narrow encoding: a run continues, and exit codes are correct.
"""

from __future__ import annotations

import contextlib
import ctypes
import io
import json
import os
import subprocess
import sys
import types
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from proxlearn import cli, portability
from proxlearn.errors import InputError
from proxlearn.memory import free_memory, memory_limit
from proxlearn.portability import available_memory, physical_memory
from proxlearn.predict.prediction_table import exact_output
from proxlearn.printable_text import printable, printable_lines
from proxlearn.run.session import open_run_log
from proxlearn.terminal.streams import notice, try_write

GIB = 2**30
LIMITS = {"2GiB": 2 * GIB, "1.5 gb": 1_500_000_000, "500MiB": 500 * 2**20, "7kB": 7000, " 4096 ": 4096, "1TiB": 2**40}


def write_files(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="ascii")


MEMINFO = {"proc/meminfo": f"MemTotal: {16 * 2**20} kB\nMemAvailable: {9 * 2**20} kB\n"}
VERSION_2 = {
    "proc/self/cgroup": "0::/user/job\n",
    "sys/fs/cgroup/user/memory.max": f"{4 * GIB}\n",
    "sys/fs/cgroup/user/memory.current": f"{3 * GIB}\n",
    "sys/fs/cgroup/user/memory.stat": f"anon 1\ninactive_file {GIB}\n",
    "sys/fs/cgroup/user/job/memory.max": "max\n",
    "sys/fs/cgroup/user/job/memory.current": f"{GIB}\n",
}
# A container whose cgroup is mounted as the root, while /proc names its path on the host.
VERSION_1 = {
    "proc/self/cgroup": "5:cpu,cpuacct:/\n4:memory:/docker/abc\n0::/\n",
    "sys/fs/cgroup/memory/memory.limit_in_bytes": f"{3 * GIB}\n",
    "sys/fs/cgroup/memory/memory.usage_in_bytes": f"{2 * GIB}\n",
    "sys/fs/cgroup/memory/memory.stat": f"inactive_file 5\ntotal_inactive_file {GIB // 2}\n",
}


@pytest.mark.parametrize(
    "files, expected",
    [({}, 9 * GIB), (VERSION_2, 2 * GIB), (VERSION_1, 3 * GIB // 2), ({"proc/self/cgroup": "0::/\n"}, 9 * GIB)],
)
def test_the_smallest_limit_that_applies_is_the_available_memory(
    tmp_path: Path, files: dict[str, str], expected: int
) -> None:
    write_files(tmp_path, MEMINFO | files)
    assert available_memory(tmp_path) == expected


def test_a_full_cgroup_leaves_nothing_and_an_unknown_system_its_physical_memory(tmp_path: Path) -> None:
    write_files(tmp_path, MEMINFO | VERSION_2 | {"sys/fs/cgroup/user/memory.max": "1000\n"})
    assert available_memory(tmp_path) == 0
    assert available_memory(tmp_path / "nowhere") == physical_memory()


def test_this_machine_has_free_memory_and_no_more_than_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PROXLEARN_MEMORY", raising=False)
    assert memory_limit() is None
    assert 0 < free_memory(torch.device("cpu")) <= physical_memory()


@pytest.mark.parametrize("text, limit", LIMITS.items())
def test_the_variable_limits_the_free_memory_of_every_device(
    monkeypatch: pytest.MonkeyPatch, text: str, limit: int
) -> None:
    monkeypatch.setenv("PROXLEARN_MEMORY", text)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (7 * GIB, 8 * GIB))
    assert free_memory("cuda:0") == min(limit, 7 * GIB)
    assert free_memory("cpu") <= limit


@given(st.text(st.characters(codec="ascii", exclude_characters="\0"), max_size=8))
def test_any_text_is_a_positive_limit_or_an_input_error(text: str) -> None:
    with pytest.MonkeyPatch.context() as patch, contextlib.suppress(InputError):
        patch.setenv("PROXLEARN_MEMORY", text)
        limit = memory_limit()
        assert limit is None if not text.strip() else limit is not None and limit > 0


@pytest.mark.parametrize("text", ["0", "-1GiB", "2 giga", "GiB", "1e400", "9" * 400, "0.1B", "²GiB"])
def test_nonsense_is_refused(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("PROXLEARN_MEMORY", text)
    with pytest.raises(InputError, match=r"PROXLEARN_MEMORY=.* is not an amount of memory; .*2GiB"):
        free_memory()


MODULES = ("fcntl", "resource", "pwd", "grp", "termios")
FUNCTIONS = (
    *("fchmod", "fchown", "geteuid", "getuid", "mkfifo", "pread", "pwrite", "register_at_fork"),
    *("sched_getaffinity", "set_blocking", "statvfs", "sysconf"),
)
FLAGS = ("O_CLOEXEC", "O_DIRECTORY", "O_NOFOLLOW", "O_NONBLOCK")
SIGNALS = ("SIGKILL", "SIGHUP", "SIGALRM", "pthread_sigmask")

WINDOWS = f"""
import ctypes, importlib, os, pkgutil, signal, sys, types
# Packages of others know Windows themselves: they are imported before anything is removed.
import filelock, hydra, matplotlib.pyplot, mlflow, numba.np.ufunc.parallel, pandas, scipy.spatial, sklearn.datasets
import PIL.Image, platformdirs.unix, safetensors.torch, tensorboard, torch, torch.utils.tensorboard, tqdm, wandb
for name in {MODULES}:
    sys.modules[name] = None
for name in {FUNCTIONS + FLAGS}:
    delattr(os, name)
for name in {SIGNALS}:
    delattr(signal, name)

def GlobalMemoryStatusEx(reference):
    reference._obj.total = 2**34

ctypes.windll = types.SimpleNamespace(kernel32=types.SimpleNamespace(GlobalMemoryStatusEx=GlobalMemoryStatusEx))
import proxlearn
"""
IMPORT_ALL = """
for module in pkgutil.walk_packages(proxlearn.__path__, "proxlearn."):
    if not module.name.endswith("__main__"):
        importlib.import_module(module.name)
print(sum(name.startswith("proxlearn.") for name in sys.modules))
"""
TRAIN = """
from proxlearn.cli import main
words = ["dataset=sine", "N=5", "steps=2", "dataset.points=10", "threads=1", "hydra.run.dir=run"]
sys.exit(main(["train", *words]) or main(["resume", "run", "--steps", "4"]) or main(["plot", "run"]))
"""


def run_on_windows(code: str, folder: Path) -> str:
    done = subprocess.run([sys.executable, "-c", WINDOWS + code], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_every_module_is_imported_and_a_run_is_trained_resumed_and_drawn_without_posix(tmp_path: Path) -> None:
    package = Path(portability.__file__).parent
    number, _, printed = run_on_windows(IMPORT_ALL + TRAIN, tmp_path).partition("\n")
    assert int(number) >= sum(1 for _ in package.rglob("*.py")) / 2
    assert "finished at step 4" in printed
    assert (tmp_path / "run" / "risk.png").exists()
    assert not (tmp_path / "run" / ".lock").exists()


def test_the_memory_is_that_of_the_windows_interface_where_there_is_no_sysconf(monkeypatch: pytest.MonkeyPatch) -> None:
    def answer(reference: object) -> None:
        status = reference._obj  # type: ignore[attr-defined]
        # The documented size of MEMORYSTATUSEX; the call fails where the length is another.
        assert status.length == ctypes.sizeof(status) == 64
        status.total = 12 * 2**30

    windll = types.SimpleNamespace(kernel32=types.SimpleNamespace(GlobalMemoryStatusEx=answer))
    monkeypatch.setattr(ctypes, "windll", windll, raising=False)
    monkeypatch.delattr(os, "sysconf")
    assert portability.physical_memory() == 12 * 2**30


def test_the_memory_of_this_machine_holds_this_process() -> None:
    assert 2**20 < portability.peak_memory() < portability.physical_memory()


def test_the_peak_of_memory_is_not_a_number_where_the_system_does_not_report_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "resource", None)
    assert portability.peak_memory() != portability.peak_memory()


HOSTILE = "a\x1b[31mb\x07\x9b\u202e\u2028\ud800\x00\x7f\r"


def assert_harmless(text: str) -> None:
    for line in text.split("\n"):
        assert line.isprintable(), ascii(line)


def test_every_character_is_printed_or_escaped() -> None:
    for code in range(0x3000):
        printed = printable(chr(code))
        assert printed.replace("\xa0", " ").isprintable() or chr(code).isspace(), hex(code)
        assert "\x1b" not in printed
        assert printable_lines(chr(code)) == (
            "\n" if code == 10 else printed if code not in (9, 13) else ascii(chr(code))[1:-1]
        )
    assert printable("naïve 日本 €\u3000→") == "naïve 日本 €\u3000→"
    assert printable("a\nb") == "a b"


def test_errors_and_notices_are_one_harmless_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert_harmless(str(InputError(f"no column `{HOSTILE}\n`", HOSTILE)))
    notice(f"column `{HOSTILE}\n`")
    assert cli.main([HOSTILE]) == 2
    message = capsys.readouterr().err
    assert_harmless(message)
    assert message.count("\n") == 2


def test_status_shows_names_and_remarks_without_control_characters(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "a\x1b]0;title\x07\n\x9b31m"
    run.mkdir()
    values = {"state": "failed", "step": 1, "steps": 2, "seconds": 1.0, "started": HOSTILE, "pid": 1}
    (run / "status.json").write_text(json.dumps(values | {"host": HOSTILE, "error": f"{HOSTILE}\n{HOSTILE}"}))
    dead = tmp_path / "dead"
    dead.mkdir()
    (dead / "status.json").write_text(json.dumps(values | {"state": "running", "host": HOSTILE}))
    assert cli.main(["status", str(tmp_path)]) == 0
    printed = capsys.readouterr().out
    assert_harmless(printed)
    assert len(printed.splitlines()) == 3


def test_warnings_of_a_run_are_harmless_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stderr", sys.stdout)
    journal = open_run_log(tmp_path / "train.log")
    journal.warning("took over the folder from %s\n", HOSTILE.replace("\ud800", ""))
    assert_harmless(capsys.readouterr().out)
    for handler in journal.handlers:
        handler.close()


COMMAND = f'"{sys.executable}" -m proxlearn'
TRAIN_STREAMS = f"{COMMAND} train dataset=sine N=8 dataset.points=10 steps=5 threads=1 compile=off"


def shell(line: str, folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a line of bash; its exit code is that of the command before a pipe."""
    command = ["bash", "-c", f"set -o pipefail; {line}"]
    environment = os.environ | {"PYTHONPATH": str(Path.cwd())} | variables
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False, errors="replace"
    )


@pytest.mark.parametrize(
    "streams", ["2>&1 | true", "<&- >&- 2>&-", ">/dev/full 2>/dev/full"], ids=["unread", "closed", "full"]
)
def test_a_run_goes_on_to_its_end_without_its_output(streams: str, tmp_path: Path) -> None:
    done = shell(f"{TRAIN_STREAMS} hydra.run.dir=run {streams}", tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    status = json.loads((tmp_path / "run" / "status.json").read_text())
    assert (status["state"], status["step"]) == ("finished", 5)
    # A closed stream's number is not given to a file of the run, which words would then go into.
    for path in (tmp_path / "run").rglob("*"):
        assert path.is_dir() or b"proxlearn: " not in path.read_bytes(), path
    assert (tmp_path / "run" / "risk.png").stat().st_size > 1000


def test_a_refused_run_has_its_exit_code_whoever_reads(tmp_path: Path) -> None:
    assert shell(f"{COMMAND} train betta=1 2>&1 | true", tmp_path).returncode == 2


@pytest.mark.parametrize("words", ["data", "--help", "status --help", "train --cfg job"])
def test_a_result_that_cannot_be_printed_is_an_error_in_one_line(words: str, tmp_path: Path) -> None:
    done = shell(f"{COMMAND} {words} >/dev/full", tmp_path)
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith("proxlearn: cannot write to standard output: No space left on device; ")


def test_closed_standard_output_is_an_error_where_it_is_the_result(tmp_path: Path) -> None:
    done = shell(f"{COMMAND} data >&-", tmp_path)
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert shell(f"{COMMAND} data >&- 2>&-", tmp_path).returncode == 1


def test_a_reader_that_has_enough_is_no_failure(tmp_path: Path) -> None:
    done = shell(f"{COMMAND} data | head -1", tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("dataset")
    assert shell(f"{COMMAND} data | true", tmp_path).returncode == 0


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_letters_that_a_terminal_lacks_are_escaped(encoding: str, tmp_path: Path) -> None:
    (tmp_path / "β").mkdir()
    done = shell(f"{COMMAND} status β; {COMMAND} status γ", tmp_path, PYTHONIOENCODING=encoding, PYTHONUTF8="0")
    assert done.stdout == "there are no runs in \\u03b2\n"
    assert done.stderr.startswith("proxlearn: the folder \\u03b3 does not exist; ")
    assert done.stderr.count("\n") == 1


def test_a_table_on_standard_output_is_never_altered(monkeypatch: pytest.MonkeyPatch) -> None:
    narrow = io.TextIOWrapper(io.BytesIO(), encoding="ascii", errors="backslashreplace")
    monkeypatch.setattr(sys, "stdout", narrow)
    with pytest.raises(InputError, match=r"has no character '\\xe9'; write to a file"), exact_output() as file:
        file.write("caf\xe9")


def test_words_never_raise() -> None:
    try_write("anything", None)
    closed = io.StringIO()
    closed.close()
    try_write("anything", closed)
    narrow = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    try_write("\u03b2", narrow)
    assert narrow.buffer.getvalue() == b"\\u03b2"  # type: ignore[attr-defined]
    with open("/dev/full", "w") as full:
        try_write("anything", full)
        # Closing it must not try again what could not be written.
        os.dup2(os.open(os.devnull, os.O_WRONLY), full.fileno())
