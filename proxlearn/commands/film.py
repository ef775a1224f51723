"""``proxlearn film <run folder>``: the cloud in motion, as a GIF or an MP4."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from proxlearn.errors import InputError
from proxlearn.run.output_file import check_output, check_replaced, is_written_through, write_output
from proxlearn.run.overwrite import refuse_interrupted
from proxlearn.run.run_folder import RunFolder
from proxlearn.terminal.notice import notice
from proxlearn.train_session import echo
from proxlearn.validators import integer, real

DESCRIPTION = """\
Draw a film of a run from its folder alone. On the left the particles on their two principal axes, size and colour by
weight, each with its way of late; on the right the risk, with a dot for the moment; and for data of one or two
dimensions, what the whole cloud has learnt by then: the function, or the decision regions.

Every picture is a checkpoint that the run has stored; none is made up between them. A run keeps those of log-spaced
steps, five a decade (films=true). For a smoother film let it keep more: checkpoint_every=4 keep_checkpoints=1000.
"""
EXAMPLES = """\
examples:
  proxlearn film outputs/banana/NAME                         film.gif in the run folder
  proxlearn film outputs/banana/NAME -o banana.mp4           1280 x 720, H.264: needs ffmpeg, or proxlearn[film]
  proxlearn film outputs/sine/NAME --seconds 15 --frames 90  slower, and finer where the run has stored so many
"""
MOST_BYTES = 3_000_000
FRAMES = 60


def main(args: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="proxlearn film",
        description=DESCRIPTION,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("folder", type=Path, metavar="RUN_FOLDER", help="a folder that `proxlearn train` made")
    parser.add_argument(
        "-o", "--output", type=Path, metavar="FILE", help="a .gif or .mp4; default: RUN_FOLDER/film.gif"
    )
    parser.add_argument("--frames", type=float, help=f"at most so many pictures, log-spaced ({FRAMES})")
    parser.add_argument("--particles", type=float, default=300, help="at most so many particles (300)")
    parser.add_argument(
        "--seconds", type=float, default=8, help="how long it takes, the last picture's pause aside (8)"
    )
    parsed = parser.parse_args(args)
    folder: Path = parsed.folder
    if not folder.is_dir():
        raise InputError(f"no folder {folder}", "name one that `proxlearn train` made")
    refuse_interrupted(folder)
    RunFolder(folder).refuse_links()
    output: Path = parsed.output or folder / "film.gif"
    frames = integer(at_least=1, below=1001, example=FRAMES)(
        "--frames", FRAMES if parsed.frames is None else parsed.frames
    )
    particles = integer(at_least=1, below=100_001, example=300)("--particles", parsed.particles)
    seconds = real(above=0, below=601, example=8)("--seconds", parsed.seconds)
    check_output(output)

    from proxlearn.views.film.video import check_ending, is_film

    check_ending(output)
    if parsed.output is None:
        check_replaced(output, is_film, "film")
    # torch and matplotlib: not before the words are known to be good.
    from tqdm import tqdm

    from proxlearn.views.film.film import Film
    from proxlearn.views.film.video import WIDTHS, gif, mp4

    film = Film(folder, frames, particles)
    if len(film) < frames and parsed.frames is not None:
        notice(f"{len(film)} pictures instead of {frames}: {film.why_fewer}")
    interval = 0.1 if sys.stderr.isatty() else 10.0
    pictures = film.pictures(WIDTHS[output.suffix.lower()])
    shown = tqdm(pictures, total=len(film), desc="film", unit="frame", delay=2, mininterval=interval)
    each = seconds / len(film)
    made = mp4(shown, each) if output.suffix.lower() == ".mp4" else gif(shown, each, MOST_BYTES)
    write_output(output, made)
    if not is_written_through(output):
        echo(f"{output} ({len(film)} frames, {len(made) / 1e6:.1f} MB)\n")
    return 0
