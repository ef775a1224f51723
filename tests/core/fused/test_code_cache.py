"""The cache of compiled passes: damaged files are replaced, only own files are read, and the package is unchanged."""

from __future__ import annotations

import importlib.util
import os
import resource
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import proxlearn
from proxlearn.core.compile_time import COMPILE_TIME
from proxlearn.core.fused.code_cache import compile_helper, compile_pass, folders, sources_key
from proxlearn.core.fused.vector_math import FAST

PACKAGE = Path(proxlearn.__file__).parent


def double(x):  # type: ignore[no-untyped-def]
    return 2 * x


def square(x):  # type: ignore[no-untyped-def]
    return x * x


@pytest.fixture(autouse=True)
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Use separate cache and temporary folders for the test: ``cache`` and ``tmp`` below the returned folder."""
    (tmp_path / "tmp").mkdir()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    return tmp_path


def is_compiled(function: Callable[..., object], value: int | float, expected: int | float) -> bool:
    """Return whether the pass was compiled for its first call in a new process instead of being loaded."""
    before = COMPILE_TIME.passes
    assert compile_pass()(function)(value) == expected
    return COMPILE_TIME.passes > before


def stored(folder: Path, name: str = "*") -> list[Path]:
    return sorted(path for path in folder.rglob(name) if path.is_file())


@pytest.mark.parametrize("fast_first", [True, False])
def test_the_code_of_a_function_does_not_depend_on_its_first_caller(fast_first: bool) -> None:
    def total(x):  # type: ignore[no-untyped-def]
        result = 0.0
        for value in x:
            result += value
        return result

    in_order, in_any_order = compile_helper()(total), compile_helper(fastmath=FAST)(total)

    def totals(x):  # type: ignore[no-untyped-def]
        return in_order(x), in_any_order(x)

    flags: list[dict[str, Any]] = [{"fastmath": FAST, "error_model": "numpy", "forceinline": True}, {}]
    for options in flags if fast_first else reversed(flags):
        compile_pass(**options)(totals)(np.ones(3))
    for function, reordered in ((in_order, False), (in_any_order, True)):
        (compiled,) = function.overloads.values()
        assert ("reassoc" in compiled.library.get_llvm_str()) == reordered
    # A pass can be loaded from the cache, which stores no text of its code.
    assert {"fastmath", "error_model", "forceinline"} <= compile_pass()(total).targetoptions.keys()


def test_processes_that_start_together_compile_a_pass_once(places: Path) -> None:
    statement = (
        "import sys; from proxlearn.core.compile_time import COMPILE_TIME; "
        "from proxlearn.core.fused.screening import ranges; import numpy as np; x = np.ones(3); "
        "sys.stdin.read(1); ranges(x, x, x, 1.0); print(COMPILE_TIME.seconds, COMPILE_TIME.load_seconds)"
    )
    command = [sys.executable, "-c", statement]
    pipe = subprocess.PIPE
    processes = [subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) for _ in range(3)]
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("x")
        process.stdin.flush()
    loaded = [float(process.communicate(timeout=60)[0].split()[1]) > 0 for process in processes]
    # A process that loads the code was late or has waited for the one that compiled it.
    assert loaded.count(False) == 1
    assert len(stored(places)) == 1


def test_a_pass_is_compiled_once_and_then_loaded(places: Path) -> None:
    assert is_compiled(double, 3, 6)
    assert not is_compiled(double, 4, 8)
    (file,) = stored(places)
    assert file.is_relative_to(places / "cache")
    assert [stat.S_IMODE(path.stat().st_mode) for path in (file.parent, file)] == [0o700, 0o600]
    assert is_compiled(double, 1.5, 3.0)
    assert len(stored(places)) == 2


DAMAGE: dict[str, Callable[[Path, Path], object]] = {
    "empty": lambda file, other: file.write_bytes(b""),
    "cut in its head": lambda file, other: file.write_bytes(file.read_bytes()[:20]),
    "cut in its code": lambda file, other: file.write_bytes(file.read_bytes()[:-100]),
    "garbage": lambda file, other: file.write_bytes(os.urandom(5000)),
    "one bit": lambda file, other: file.write_bytes(file.read_bytes()[:-7] + b"\0" + file.read_bytes()[-6:]),
    "longer": lambda file, other: file.write_bytes(file.read_bytes() + b"x"),
    "another pass": lambda file, other: shutil.copy(other, file),
    "a folder": lambda file, other: (file.unlink(), file.mkdir()),
    "a link": lambda file, other: (file.unlink(), file.symlink_to(other)),
    "a pipe": lambda file, other: (file.unlink(), os.mkfifo(file)),
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_a_damaged_file_is_compiled_again_and_mended(damage: Callable[[Path, Path], object], places: Path) -> None:
    assert is_compiled(double, 3, 6)
    assert is_compiled(square, 3, 9)
    (file,), (other,) = stored(places, "*.double-*"), stored(places, "*.square-*")
    damage(file, other)
    assert is_compiled(double, 5, 10)
    assert not is_compiled(double, 5, 10)


def unusable(path: Path) -> None:
    # A file where a folder should be: even root cannot write there.
    path.write_text("")


def test_without_a_cache_folder_the_user_s_own_temporary_folder_serves(places: Path) -> None:
    unusable(places / "cache")
    assert is_compiled(double, 3, 6)
    assert not is_compiled(double, 3, 6)
    (file,) = stored(places / "tmp")
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    assert sources_key() in file.parent.name


def test_without_any_folder_passes_are_compiled_in_memory(places: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    unusable(places / "cache")
    unusable(places / "nothing")
    monkeypatch.setattr(tempfile, "tempdir", str(places / "nothing"))
    assert is_compiled(double, 3, 6)
    assert COMPILE_TIME.cache_error is not None
    assert is_compiled(double, 3, 6)


def test_a_cache_that_takes_no_more_bytes_is_no_failure(places: Path) -> None:
    """A limit on file sizes simulates a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
    try:
        assert is_compiled(double, 3, 6)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert COMPILE_TIME.cache_error is not None
    assert stored(places) == []


@pytest.fixture
def full_disk(places: Path) -> Iterator[Path]:
    (places / "cache").mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=16k", "tmpfs", str(places / "cache")]
    if subprocess.run(command, check=False, capture_output=True).returncode:
        pytest.skip("no right to mount; a limit of file sizes is tested everywhere")
    yield places / "cache"
    subprocess.run(["umount", str(places / "cache")], check=True)


def test_a_full_disk_leads_to_the_temporary_folder(full_disk: Path, places: Path) -> None:
    (full_disk / "ballast").write_bytes(b"x" * 12_000)
    assert is_compiled(double, 3, 6)
    assert not is_compiled(double, 3, 6)
    assert len(stored(places / "tmp")) == 1


def test_a_folder_that_somebody_else_could_have_filled_is_not_read(places: Path) -> None:
    unusable(places / "cache")
    (own,) = folders()
    assert is_compiled(double, 3, 6)
    assert not is_compiled(double, 3, 6)
    own.rename(places / "elsewhere")
    own.symlink_to(places / "elsewhere")
    assert list(folders()) == []
    assert is_compiled(double, 3, 6)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to another user")
def test_files_and_folders_of_another_user_are_not_read(places: Path) -> None:
    unusable(places / "cache")
    assert is_compiled(double, 3, 6)
    (file,) = stored(places / "tmp")
    os.chown(file, 12345, 12345)
    assert is_compiled(double, 3, 6)
    assert not is_compiled(double, 3, 6)
    os.chown(file.parent, 12345, 12345)
    assert list(folders()) == []
    assert is_compiled(double, 3, 6)


def test_an_edited_function_is_compiled_again(places: Path) -> None:
    """The key covers the file of a pass and the files of all other passes, whose code it may contain."""

    def load(text: str) -> Callable[..., object]:
        (places / "edited.py").write_text(text)
        spec = importlib.util.spec_from_file_location("edited", places / "edited.py")
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        function: Callable[..., object] = module.f
        return function

    assert is_compiled(load("def f(x):\n    return x + 111\n"), 1, 112)
    # As long as before, and of the same bytecode: only a constant differs.
    assert is_compiled(load("def f(x):\n    return x + 222\n"), 1, 223)
    assert not is_compiled(load("def f(x):\n    return x + 111\n"), 1, 112)


def test_every_source_of_the_passes_is_a_part_of_the_folder_s_name(places: Path) -> None:
    copied = shutil.copytree(PACKAGE / "core", places / "core")
    sources = [*(copied / "fused").glob("*.py"), copied / "noise.py"]
    keys = {sources_key(copied)}
    for path in sources:
        path.write_text(path.read_text() + "#\n")
        sources_key.cache_clear()
        keys.add(sources_key(copied))
    assert len(keys) == 1 + len(sources)
    assert all(sources_key() in folder.name for folder in folders())


def test_no_pass_uses_numba_s_own_cache() -> None:
    """It would write into the package if no other folder is writable."""
    for path in PACKAGE.rglob("*.py"):
        assert "cache=True" not in path.read_text(encoding="utf-8"), path
    assert not [path for path in PACKAGE.rglob("*") if path.suffix in (".nbi", ".nbc")]


CLOUDS = """
import hashlib, torch
from proxlearn.run.experiment import build_experiment, first_checkpoint
from proxlearn.training.iterate import iterate
from tests.conftest import config_of

TUNED = ("recipe=tuned", "beta=1e4", "h=0.1", "epsilon=0.5", "init_scale=1.0")
for dataset in ("wdbc", "banana", "twonorm", "shd", "digits", "sine"):
    for recipe in ((), TUNED):
        for dtype in ("float32", "float64"):
            config = config_of(f"dataset={dataset}", *recipe, "N=300", f"device.dtype={dtype}", "threads=1")
            experiment = build_experiment(config)
            checkpoint, generator = first_checkpoint(experiment), torch.Generator()
            generator.set_state(checkpoint.generator)
            options = {"generator": generator, "until": 8, "engine": "fused", "threads": 1}
            for cloud, _ in iterate(experiment.source, checkpoint.cloud, experiment.hyper, **options):
                pass
            numbers = cloud.theta.numpy().tobytes() + cloud.log_rho.numpy().tobytes()
            print(dataset, dtype, *recipe, hashlib.sha256(numbers).hexdigest())
"""


@pytest.mark.slow
def test_the_process_that_compiles_a_pass_has_the_bits_of_those_that_load_it(paper_files: Path, tmp_path: Path) -> None:
    environment = os.environ | {"XDG_CACHE_HOME": str(tmp_path), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", CLOUDS]
    compiled, loaded = (
        subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout for _ in range(2)
    )
    assert len(compiled.splitlines()) == 24
    assert any(tmp_path.rglob("tanh_one_feature.backward-*"))
    assert loaded == compiled
