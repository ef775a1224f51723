"""What a command would replace without having been told to: its own earlier page or film, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from proxlearn.cli import main
from proxlearn.views.film.video import FILM_COMMENT, is_film
from tests.run.test_output_file import refused
from tests.small_runs import run, small


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("made") / "run"
    run(small("compile=off", steps=6), folder)
    return folder


@pytest.mark.parametrize(
    ("words", "name", "mine"),
    [(["report"], "report.html", b"<html>mine</html>"), (["film", "--frames", "2"], "film.gif", b"GIF89a mine")],
)
def test_a_file_that_is_not_ours_stays(
    words: list[str], name: str, mine: bytes, made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (made / name).write_bytes(mine)
    assert "give -o FILE" in refused([words[0], str(made), *words[1:]], capsys)
    assert (made / name).read_bytes() == mine
    assert main([words[0], str(made), *words[1:], "-o", str(tmp_path / name)]) == 0
    (made / name).unlink()
    for _ in range(2):
        assert main([words[0], str(made), *words[1:]]) == 0


def test_a_film_is_known_by_its_mark_or_its_old_size() -> None:
    old = b"GIF89a" + (960).to_bytes(2, "little") + (540).to_bytes(2, "little")
    assert is_film(old)
    assert is_film(b"GIF89a" + bytes(4) + FILM_COMMENT)
    assert not is_film(b"GIF89a" + bytes(4))
    assert not is_film(FILM_COMMENT)
