"""The README's section for users with their own data: every block is run as written."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import make_blobs

from tests.test_readme_data import section

BLOCK = re.compile(r"^```(python|sh)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
EXAMPLES = ("Fit on your CSV in five lines", "Sweep", "Compare weights", "The recursion from Python", "A new neuron")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with my.csv and new.csv, and a `proxlearn` on the path."""
    folder = tmp_path_factory.mktemp("readme")
    X, y = make_blobs(60, centers=3, n_features=4, cluster_std=2.0, random_state=0)
    frame = pd.DataFrame(X, columns=["a", "b", "c", "d"]).assign(label=np.array(["red", "green", "blue"])[y])
    frame.to_csv(folder / "my.csv", index=False)
    frame.drop(columns="label").head(9).to_csv(folder / "new.csv", index=False)
    (folder / "bin").mkdir()
    command = folder / "bin" / "proxlearn"
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m proxlearn "$@"\n')
    command.chmod(0o755)
    return folder


@pytest.mark.parametrize("example", EXAMPLES)
def test_every_block_of_an_example_runs(folder: Path, example: str) -> None:
    environment = os.environ | {"PATH": f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}", "OMP_NUM_THREADS": "1"}
    found = BLOCK.findall(section(example))
    assert found
    said = ""
    for language, code in found:
        words = [sys.executable, "-c", code] if language == "python" else ["sh", "-e", "-c", code]
        done = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        said += done.stdout
    if example == EXAMPLES[0]:
        assert len(pd.read_csv(folder / "out.csv")) == 9
        # The estimator and the command line, each in its own way, know these blobs.
        labels = pd.read_csv(folder / "my.csv")["label"].head(9).tolist()
        assert re.findall(r"red|green|blue", said)[:9] == labels
        assert float(re.search(r"^\| weighted +\| ([\d.]+)", said, re.MULTILINE)[1]) > 0.9
    elif example == EXAMPLES[1]:
        assert len(list((folder / "outputs" / "csv").iterdir())) == 2
        assert "epsilon" in said
    elif example == EXAMPLES[2]:
        assert [line.split()[0] for line in said.splitlines()] == ["proximal", "uniform", "fisher_rao"]
    elif example == EXAMPLES[3]:
        assert float(said) < 0.1
