"""Messages of commands that cannot start, and of runs that an overwrite would restart."""

from proxlearn.cli import main
from proxlearn.errors import continue_command

SMALL = ["dataset=sine", "N=8", "dataset.points=10", "threads=1"]


def test_a_removed_working_directory_is_named(tmp_path, monkeypatch, capsys):
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert main(["train", *SMALL]) == 2
    assert "the working directory has been removed" in capsys.readouterr().err
    monkeypatch.chdir(tmp_path)


def test_what_continues_a_run_is_never_to_start_it_again():
    assert continue_command(False) == "the same command"
    assert continue_command(True) == "the same command without overwrite=true"
