"""By default, a command replaces only its own earlier page or film."""

from __future__ import annotations

from pathlib import Path

import pytest

from proxlearn.cli import main
from proxlearn.views.film.video import FILM_COMMENT, is_film
from tests.run.test_user_output_file import refused
from tests.small_runs import run, small


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
    assert "move that file, or give -o FILE" in refused([command[0], str(folder), *command[1:]], capsys)
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
