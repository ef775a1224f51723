"""The comparison of two source trees: the same tree gives the same bits, and one changed bit is reported."""

from __future__ import annotations

import dataclasses
import subprocess
from pathlib import Path

import compare_bits
import numpy as np
import pytest
from compare_bits import ROOT, Case, Cloud, RunFailed, difference, export_tree, train

WORDS = ["dataset.points=10", *Case("sine", "paper", "eager", "float64").words(steps=2, N=5)]


@pytest.fixture(scope="module")
def cloud(tmp_path_factory: pytest.TempPathFactory) -> Cloud:
    return train(ROOT, WORDS, tmp_path_factory.mktemp("first") / "run")


def test_a_tree_equals_itself_and_another_seed_differs(cloud: Cloud, tmp_path: Path) -> None:
    assert (cloud.exit_code, cloud.step, cloud.theta.shape, cloud.theta.dtype) == (0, 2, (5, 3), np.float64)
    assert difference(cloud, train(ROOT, WORDS, tmp_path / "same")) is None
    text = difference(cloud, train(ROOT, [*WORDS, "seed=1"], tmp_path / "seed"))
    assert text is not None
    assert text.startswith("theta: 15 of 15 numbers, largest difference ")


@pytest.mark.parametrize("name", ["theta", "log_rho"])
@pytest.mark.parametrize("bit", [0, 51, 63])
def test_one_bit_is_a_difference(name: str, bit: int, cloud: Cloud) -> None:
    values = getattr(cloud, name).copy()
    values.view(np.uint64).flat[3] ^= np.uint64(1) << np.uint64(bit)
    text = difference(cloud, dataclasses.replace(cloud, **{name: values}))
    assert text is not None
    assert text.startswith(f"{name}: 1 of {values.size} numbers, largest difference ")


def test_a_number_that_is_not_finite_equals_itself(cloud: Cloud) -> None:
    theta = cloud.theta.copy()
    theta[0, 0], theta[1, 1] = np.nan, np.inf
    first, second = (dataclasses.replace(cloud, theta=theta.copy()) for _ in range(2))
    assert difference(first, second) is None
    assert difference(first, cloud) is not None


def test_the_step_the_exit_code_the_precision_and_the_size_are_compared(cloud: Cloud) -> None:
    assert difference(cloud, dataclasses.replace(cloud, step=1)) == "step 2 and 1"
    assert difference(cloud, dataclasses.replace(cloud, exit_code=1)) == "exit code 0 and 1"
    single = dataclasses.replace(cloud, theta=cloud.theta.astype(np.float32))
    assert difference(cloud, single) == "theta is float64 (5, 3) and float32 (5, 3)"
    assert difference(cloud, dataclasses.replace(cloud, log_rho=cloud.log_rho[:4])) is not None


def test_a_run_without_a_cloud_is_an_error_with_its_last_line(tmp_path: Path) -> None:
    with pytest.raises(RunFailed, match="unknown key `betta`"):
        train(ROOT, ["dataset=sine", "betta=1"], tmp_path / "run")


def test_the_package_of_the_given_tree_is_used_and_no_other(tmp_path: Path) -> None:
    with pytest.raises(RunFailed, match="No module named 'proxlearn'"):
        train(tmp_path / "no tree", WORDS, tmp_path / "run")
    package = tmp_path / "tree" / "proxlearn"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "__main__.py").write_text("import sys; sys.exit('the package of ' + __file__)")
    with pytest.raises(RunFailed, match=f"the package of {package}"):
        train(tmp_path / "tree", WORDS, tmp_path / "other")


def test_a_revision_is_exported_with_its_package_and_configs(tmp_path: Path) -> None:
    if subprocess.run(["git", "-C", str(ROOT), "rev-parse", "HEAD"], capture_output=True).returncode:
        pytest.skip("this tree is no git repository")
    export_tree("HEAD", tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["configs", "proxlearn"]
    assert (tmp_path / "configs" / "train.yaml").is_file()
    assert {"wdbc", "sine", "digits"} <= set(compare_bits.available_datasets(tmp_path))


def test_the_exit_code_says_whether_all_clouds_are_equal(
    cloud: Cloud, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--dataset", "sine", "--recipe", "paper", "--engine", "eager"]
    monkeypatch.setattr(compare_bits, "export_tree", lambda revision, folder: None)
    monkeypatch.setattr(compare_bits, "train", lambda tree, words, folder: cloud)
    assert compare_bits.main(arguments) == 0
    assert "2 of 2 clouds equal" in capsys.readouterr().out
    moved = dataclasses.replace(cloud, theta=cloud.theta + 1)
    monkeypatch.setattr(compare_bits, "train", lambda tree, words, folder: cloud if tree == ROOT else moved)
    assert compare_bits.main(arguments) == 1
    assert "DIFFERS: theta: 15 of 15 numbers, largest difference 1\n" in capsys.readouterr().out
