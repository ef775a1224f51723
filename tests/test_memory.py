"""Free memory: the value reported by the system, the rest of a cgroup's limit, and the limit set by the user."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from proxlearn.errors import InputError
from proxlearn.memory import free_memory, memory_limit
from proxlearn.portability import available_memory, physical_memory

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
