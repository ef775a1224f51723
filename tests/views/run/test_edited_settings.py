"""Views reject results whose settings were edited after the run."""

import json
import shutil
from pathlib import Path

import pytest
from small_runs import run, small, status

from proxlearn.cli import main
from tests.conftest import OLD_FOLDERS

VIEWS = ("plot", "report", "film")


def edit(folder: Path, old: str, new: str) -> None:
    text = (folder / "config.yaml").read_text()
    assert text.count(old) == 1
    (folder / "config.yaml").write_text(text.replace(old, new))


def refusal(view: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> str:
    before = sorted(path.name for path in folder.iterdir())
    assert main([view, str(folder)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert sorted(path.name for path in folder.iterdir()) == before
    return line


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("trained") / "run"
    run(small(steps=5), folder)
    return folder


@pytest.fixture
def folder(trained: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(trained, tmp_path / "run"))


@pytest.mark.parametrize("view", VIEWS)
def test_a_view_names_the_setting_that_was_edited(view: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    edit(folder, "\nN: 8\n", "\nN: 500\n")
    line = refusal(view, folder, capsys)
    assert "started with N=8, but config.yaml has N=500" in line
    assert "undo the edit" in line


def test_settings_that_do_not_change_the_result_may_be_edited(folder: Path) -> None:
    edit(folder, "\nsteps: 5\n", "\nsteps: 50\n")
    assert main(["plot", str(folder)]) == 0


def test_numbers_that_were_selected_are_those_of_the_run(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Simulate a run with a selection: write status.json and selection.json as such a run does."""
    beta = small().beta
    edit(folder, f"\nbeta: {beta}\n", "\nbeta: null\n")
    edit(folder, f"\ninit: {small().init}\n", "\ninit: normal\n")
    edit(folder, "\ninit_scale: null\n", "\ninit_scale: 1.0\n")
    values = status(folder) | {"selected": {"beta": beta}}
    del values["settings"], values["settings_sha256"]
    (folder / "status.json").write_text(json.dumps(values))
    shutil.rmtree(folder / "checkpoints")
    for chosen, code in ((beta, 0), (2 * beta, 2)):
        (folder / "selection.json").write_text(json.dumps({"chosen": {"beta": chosen}}))
        assert main(["plot", str(folder)]) == code
    assert f"was trained with beta={beta}, but selection.json has {2 * beta}" in capsys.readouterr().err


def test_of_an_old_folder_the_checkpoints_tell(
    old_folders: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    old = next(folder for folder in OLD_FOLDERS if "sine" in folder.parts)
    folder = Path(shutil.copytree(old_folders / old, tmp_path / "old"))
    assert "settings_sha256" not in status(folder)
    assert main(["plot", str(folder)]) == 0
    capsys.readouterr()
    edit(folder, "\nN: 12\n", "\nN: 500\n")
    assert "config.yaml was edited after the run started" in refusal("plot", folder, capsys)
