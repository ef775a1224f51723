"""``proxlearn data``: the table, fetching and verifying.

`proxlearn paper`: its arguments, and the errors for wrong ones.

`proxlearn resume`, and the exit codes and messages with which a run ends.

By default, a command replaces only its own earlier page or film.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import proxlearn as pl
from proxlearn import cli
from proxlearn.cli import main
from proxlearn.data import registry
from proxlearn.errors import InputError
from proxlearn.paper.builders import PAGES, TABLES
from proxlearn.paper.run_plan import PLAN
from proxlearn.paper.target_names import GROUPS, MEASUREMENTS, TARGETS, parse_targets
from proxlearn.views.film.video import FILM_COMMENT, is_film
from tests.data.conftest import empty_cache
from tests.run.test_user_output_file import refused
from tests.small_runs import FORKSERVER, run, small

__all__ = ["empty_cache"]


def test_the_table_names_every_dataset_with_its_figures(empty_cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["data"]) == 0
    lines = {line.split()[0]: line for line in capsys.readouterr().out.splitlines()}
    assert set(lines) == {"dataset", *registry.LOADERS}
    assert lines["shd"].split()[1:4] == ["1593", "256", "10"]
    assert "CC BY 4.0" in lines["shd"]
    assert "  not fetched  " in lines["banana"]
    assert "  none needed  " in lines["wdbc"]
    assert "  dataset.path  " in lines["csv"]


def test_present_files_are_shown_with_their_place(paper_files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["data", "list", "banana"]) == 0
    assert str(paper_files / "banana.dat") in capsys.readouterr().out


def test_it_answers_without_torch_pandas_or_scikit_learn() -> None:
    code = (
        "import sys; from proxlearn import cli; cli.main(['data']); cli.main(['data', 'verify', 'wdbc']);"
        "sys.exit(bool({'torch', 'pandas', 'sklearn', 'matplotlib'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=False).returncode == 0


def test_verify_passes_good_files(paper_files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["data", "verify"]) == 0
    assert len(re.findall(r"has the expected sha256 [0-9a-f]{64}$", capsys.readouterr().out, re.MULTILINE)) == 4


def test_verify_names_a_damaged_file_and_goes_on(
    paper_files: Path, empty_cache: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    empty_cache.mkdir(parents=True)
    for name in ("banana.dat", "pima.dat"):
        (empty_cache / name).write_bytes((paper_files / name).read_bytes())
    with open(empty_cache / "banana.dat", "r+b") as file:
        file.write(b"7")
    assert cli.main(["data", "verify"]) == 2
    output = capsys.readouterr().out
    assert f"banana: {empty_cache / 'banana.dat'} is damaged" in output
    assert len(re.findall(r"has the expected sha256 [0-9a-f]{64}$", output, re.MULTILINE)) == 1
    assert "shd: semeion.data is not on this machine" in output


def test_fetch_leaves_good_files_alone_and_says_where_they_are(
    paper_files: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["data", "fetch", "banana", "wdbc"]) == 0
    output = capsys.readouterr().out
    assert f"{paper_files / 'banana.dat'} is present and has the expected sha256" in output
    assert "wdbc: needs no file" in output


def test_an_unknown_name_is_corrected(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["data", "fetch", "bananna"]) == 2
    assert "did you mean `banana`?" in capsys.readouterr().err


def test_every_target_has_a_builder_and_every_entry_of_the_plan_a_target() -> None:
    assert set(TARGETS) == {*TABLES, *PAGES}
    names = {entry.name for entry in PLAN}
    assert {name for entries in TARGETS.values() for name in entries} <= names
    assert set(GROUPS["all"]) == {*TARGETS, *MEASUREMENTS}


@pytest.mark.parametrize(
    "words, quick, names",
    [
        (["table2"], False, ["table2"]),
        (["runs", "table2", "table2"], False, ["table2"]),
        (["figures", "fig4"], False, ["fig2", "fig3", "fig4", "fig5"]),
        (["all"], False, list(GROUPS["all"])),
        (["runs"], False, list(GROUPS["all"])),
        (["all"], True, list(TARGETS)),
        ([], True, list(TARGETS)),
    ],
)
def test_words_name_targets(words: list[str], quick: bool, names: list[str]) -> None:
    assert parse_targets(words, quick) == names


@pytest.mark.parametrize(
    "words, message",
    [
        (["tabel2"], "unknown target `tabel2`; did you mean `table2`?"),
        (["figure"], "unknown target `figure`; did you mean `figures`?"),
        (["tuned", "--quick"], "`tuned` does not support --quick; leave out --quick"),
        (["all", "--jobs", "0"], "--jobs must be a whole number >= 1"),
    ],
)
def test_wrong_words_get_one_line_and_exit_code_2(
    words: list[str], message: str, tmp_path: Path, monkeypatch, capsys
) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli.main(["paper", *words]) == 2
    captured = capsys.readouterr()
    assert message in captured.err
    assert (captured.out, captured.err.count("\n")) == ("", 1)
    assert list(tmp_path.iterdir()) == []


def test_help_teaches_and_no_word_shows_it(capsys) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(["paper", "--help"])
    assert ended.value.code == 0
    text = capsys.readouterr().out
    for name in (*MEASUREMENTS, *GROUPS, "table1 .. table5", "fig2 .. fig5", "runs [TARGET ...]", "--quick", "--into"):
        assert name in text
    assert "starts again from its first step" in text
    assert cli.main(["paper"]) == 2
    assert "usage: proxlearn paper" in capsys.readouterr().err


def test_without_runs_it_says_how_to_make_them(tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli.main(["paper", "table4", "tuned"]) == 1
    captured = capsys.readouterr()
    assert "has no runs of table4; the stored runs are in outputs/paper of the repository" in captured.err
    assert "`proxlearn paper runs table4` trains new ones" in captured.err
    assert "tuned has no results yet; `proxlearn paper runs tuned`" in captured.err


def test_a_folder_of_other_files_is_left_alone(tmp_path: Path, capsys) -> None:
    (tmp_path / "thesis.tex").write_text("mine")
    assert cli.main(["paper", "table4", "--into", str(tmp_path)]) == 2
    assert "choose another --into" in capsys.readouterr().err
    (tmp_path / "tuned.md").write_text("# my notes\n")
    from proxlearn.paper.tuned_page import TUNED

    with pytest.raises(InputError, match=r"tuned.md is not a page of `proxlearn paper tuned`"):
        TUNED.measure(tmp_path, 1)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["thesis.tex", "tuned.md"]


SMALL = ["dataset=sine", "N=8", "dataset.points=10", "threads=1", "log_every=10"]


def run_command(args, stderr_file):
    os.dup2(os.open(stderr_file, os.O_WRONLY | os.O_CREAT), 2)
    os._exit(main(args))


def start_command(stderr_file, *args):
    process = FORKSERVER.Process(target=run_command, args=(list(args), stderr_file))
    process.start()
    return process


def run_and_mark(args, stderr_file, marker):
    """Run a command that creates ``marker`` when its first fixed point begins to run in compiled code."""
    from proxlearn.core.fused import fixed_point

    solve = fixed_point.solve

    def solve_and_mark(kernel, log_rho, log_xi, kappa, log_z0, delta, L, tolerance):
        # One round first, which compiles or loads the code.
        solve(kernel, log_rho, log_xi, kappa, log_z0, delta, 1, tolerance)
        marker.touch()
        return solve(kernel, log_rho, log_xi, kappa, log_z0, delta, L, tolerance)

    fixed_point.solve = solve_and_mark
    run_command(args, stderr_file)


def wait_for(path):
    limit = time.monotonic() + 60
    while not path.exists():
        assert time.monotonic() < limit
        time.sleep(0.02)


@pytest.fixture(scope="module")
def finished_run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    run(small(steps=1), folder)
    return folder


@pytest.mark.parametrize("number, code", [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_with_its_code_and_one_line_and_resume_goes_on(number, code, tmp_path, capsys):
    folder, stderr_file = tmp_path / "run", tmp_path / "stderr"
    process = start_command(stderr_file, "train", *SMALL, "steps=1e6", f"hydra.run.dir={folder}")
    wait_for(folder / "checkpoints" / "cloud-000000016.safetensors")
    os.kill(process.pid, number)
    process.join(60)
    assert process.exitcode == code
    (line,) = stderr_file.read_text().splitlines()
    assert line.startswith("proxlearn: stopped at step ")
    assert line.endswith("; the same command continues from there")
    step = int(line.split("at step ")[1].split(";")[0])
    assert main(["resume", str(folder), "--steps", str(step + 10)]) == 0
    assert f"finished at step {step + 10}" in capsys.readouterr().out


def test_a_finished_run_shows_its_result(finished_run, capsys):
    assert main(["resume", str(finished_run)]) == 0
    output = capsys.readouterr().out
    assert "already finished at step 1." in output
    assert "| test  | weighted" in output


def test_a_second_process_is_told_and_a_second_signal_ends_at_once(tmp_path):
    folder, stderr_file, marker = tmp_path / "run", tmp_path / "stderr", tmp_path / "in the fixed point"
    # A step that takes minutes in compiled code, which no handler of a signal can interrupt.
    slow = ["train", "dataset=sine", "N=1000", "L=1000000", "delta=0", "threads=1", f"hydra.run.dir={folder}"]
    process = FORKSERVER.Process(target=run_and_mark, args=(slow, tmp_path / "nothing", marker))
    process.start()
    wait_for(marker)
    other = start_command(stderr_file, "resume", str(folder))
    other.join(60)
    assert other.exitcode == 2
    assert f"is in use by process {process.pid} on " in stderr_file.read_text()
    for _ in range(2):
        assert process.is_alive()
        os.kill(process.pid, signal.SIGTERM)
        time.sleep(0.3)
    process.join(10)
    assert process.exitcode == 128 + signal.SIGTERM


@pytest.mark.parametrize("steps", ["-1", "abc", "1.5", "nan", "", "9" * 400])
def test_impossible_steps_are_refused(steps, finished_run, capsys):
    assert main(["resume", str(finished_run), f"--steps={steps}"]) == 2
    assert "--steps must be a whole number" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("word", "remedy"),
    [("steps=200", "; use --steps 200"), ("+steps=200", "; use --steps 200"), ("h=0.1", "`proxlearn train ... h=0.1`")],
)
def test_resume_answers_an_override_with_the_way_to_say_it(word, remedy, finished_run, capsys):
    assert main(["resume", str(finished_run), word]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"proxlearn: `proxlearn resume` does not accept `{word}`")
    assert line.endswith(remedy)


@pytest.mark.parametrize("words", [["steps"], ["--step", "20", "more"]])
def test_resume_refuses_other_words(words, finished_run, capsys):
    with pytest.raises(SystemExit):
        main(["resume", str(finished_run), *words])
    assert "unrecognized arguments" in capsys.readouterr().err


def test_a_loss_that_does_not_fit_the_table_gets_one_line_and_no_folder(tmp_path, capsys):
    table = tmp_path / "my.csv"
    table.write_text("x,y\n" + "".join(f"{i / 7},{i / 3}\n" for i in range(60)))
    words = ["fit", str(table), "--target", "y", "--set", "loss=logistic", "-o", str(tmp_path / "zz")]
    assert main(words) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "loss=logistic does not support dataset.task=regression" in captured.err.splitlines()[-1]
    assert not (tmp_path / "zz").exists()


def test_a_neuron_without_intervals_gets_one_line(tmp_path, capsys):
    neuron = pl.neurons.FunctionNeuron(lambda theta, x: theta["c"] @ x, lambda n_x: {"c": n_x}, name="linear")
    pl.neurons.register("linear", neuron)
    try:
        words = ["dataset=sine", "dataset.neuron=linear", "N=5", "steps=1", f"hydra.run.dir={tmp_path / 'run'}"]
        assert main(["train", *words]) == 2
    finally:
        pl.neurons.unregister("linear")
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "dataset.initial has no interval for `c`; try +dataset.initial.c=[-1,1]" in captured.err


def test_a_folder_that_is_none(tmp_path, capsys):
    assert main(["resume", str(tmp_path / "nowhere")]) == 2
    assert main(["resume", str(tmp_path)]) == 2
    first, second = capsys.readouterr().err.splitlines()
    assert "does not exist" in first
    assert "is not a run folder: it has no config.yaml" in second


def test_init_from_that_does_not_fit_leaves_no_folder(finished_run, tmp_path, capsys):
    folder = tmp_path / "run"
    assert main(["train", "dataset=wdbc", "N=8", f"init_from={finished_run}", f"hydra.run.dir={folder}"]) == 2
    assert "has N=8 and 3 parameters per particle, but this run needs N=8 and 32 parameters" in capsys.readouterr().err
    assert not folder.exists()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("trained") / "run"
    run(small("compile=off", steps=6), path)
    return path


@pytest.mark.parametrize(
    ("command", "name", "content"),
    [(["report"], "report.html", b"<html>mine</html>"), (["film", "--frames", "2"], "film.gif", b"GIF89a mine")],
)
def test_a_file_of_another_program_stays(
    command: list[str], name: str, content: bytes, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / name).write_bytes(content)
    assert "move this file, or give -o FILE" in refused([command[0], str(folder), *command[1:]], capsys)
    assert (folder / name).read_bytes() == content
    assert main([command[0], str(folder), *command[1:], "-o", str(tmp_path / name)]) == 0
    (folder / name).unlink()
    for _ in range(2):
        assert main([command[0], str(folder), *command[1:]]) == 0


def test_a_film_is_recognised_by_its_comment_or_its_old_size() -> None:
    old = b"GIF89a" + (960).to_bytes(2, "little") + (540).to_bytes(2, "little")
    assert is_film(old)
    assert is_film(b"GIF89a" + bytes(4) + FILM_COMMENT)
    assert not is_film(b"GIF89a" + bytes(4))
    assert not is_film(FILM_COMMENT)
