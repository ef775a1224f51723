"""``proxlearn film <run folder>``: animate the cloud as a GIF or an MP4."""

from __future__ import annotations

import sys
from collections.abc import Sized
from pathlib import Path

from proxlearn.errors import InputError
from proxlearn.run.overwrite import refuse_interrupted
from proxlearn.run.run_folder import RunFolder
from proxlearn.run.user_output_file import check_output, check_replaced, is_written_through, write_output
from proxlearn.terminal.argument_parser import command_parser
from proxlearn.terminal.streams import notice
from proxlearn.train_and_draw import echo
from proxlearn.validators import integer, real

DESCRIPTION = """\
Draw an animation of a run. Only the run folder is needed.
  left     the particles on their two principal axes, sized and coloured by weight, with a trail of recent positions
  right    the risk, with a dot at the current recursion; for one or two features, also the learned function or the
           decision regions of the whole cloud at that recursion

Every frame is a stored checkpoint; nothing is interpolated. A run keeps the checkpoints of log-spaced steps, five per
decade (films=true). For a smoother film, train with more checkpoints: checkpoint_every=4 keep_checkpoints=1000.
"""
EXAMPLES = """\
  proxlearn film outputs/banana/NAME                         film.gif in the run folder
  proxlearn film outputs/banana/NAME -o banana.mp4           1280 x 720, H.264; needs ffmpeg or proxlearn[film]
  proxlearn film outputs/sine/NAME --seconds 15 --frames 90  slower, with more frames if enough are stored
"""
MOST_BYTES = 3_000_000
"""Maximum size of a GIF in bytes; the width of a GIF that would be larger is reduced."""
FRAMES, PARTICLES, SECONDS = 60, 300, 8


def main(args: list[str]) -> int:
    parser = command_parser("film", DESCRIPTION, EXAMPLES)
    parser.add_argument("folder", type=Path, metavar="RUN_FOLDER", help="a run folder created by `proxlearn train`")
    parser.add_argument(
        "-o",
        "--output",
        type=Path,
        metavar="FILE",
        help="the .gif or .mp4 file to write (default: RUN_FOLDER/film.gif)",
    )
    parser.add_argument(
        "--frames", type=float, help=f"maximum number of frames, at log-spaced steps (default: {FRAMES})"
    )
    parser.add_argument(
        "--particles", type=float, default=PARTICLES, help=f"maximum number of particles to draw (default: {PARTICLES})"
    )
    parser.add_argument(
        "--seconds",
        type=float,
        default=SECONDS,
        help=f"duration in seconds, without the pause at the last frame (default: {SECONDS})",
    )
    options = parser.parse_args(args)
    folder: Path = options.folder
    if not folder.is_dir():
        raise InputError(f"the folder {folder} does not exist", "give a folder that `proxlearn train` created")
    refuse_interrupted(folder)
    RunFolder(folder).refuse_links()
    output: Path = options.output or folder / "film.gif"
    frames = integer(at_least=1, below=1001, example=FRAMES)(
        "--frames", FRAMES if options.frames is None else options.frames
    )
    particles = integer(at_least=1, below=100_001, example=PARTICLES)("--particles", options.particles)
    seconds = real(above=0, below=601, example=SECONDS)("--seconds", options.seconds)
    check_output(output)

    from proxlearn.views.film.video import check_ending, is_film

    check_ending(output)
    if options.output is None:
        check_replaced(output, is_film, "film")
    # torch and matplotlib take seconds to import, so the arguments are checked first.
    from tqdm import tqdm

    from proxlearn.views.film.film import Film
    from proxlearn.views.film.video import WIDTHS, gif, mp4

    film = Film(folder, frames, particles)
    if len(film) < frames and options.frames is not None:
        notice(f"the film has {_count(film)} instead of {frames}: {film.why_fewer}")
    interval = 0.1 if sys.stderr.isatty() else 10.0
    images = film.images(WIDTHS[output.suffix.lower()])
    drawn = tqdm(images, total=len(film), desc="film", unit="frame", delay=2, mininterval=interval)
    frame_seconds = seconds / len(film)
    content = mp4(drawn, frame_seconds) if output.suffix.lower() == ".mp4" else gif(drawn, frame_seconds, MOST_BYTES)
    write_output(output, content)
    if not is_written_through(output):
        echo(f"{output} ({_count(film)}, {len(content) / 1e6:.1f} MB)\n")
    return 0


def _count(film: Sized) -> str:
    """Return the number of frames with its noun, such as `1 frame` or `90 frames`."""
    return "1 frame" if len(film) == 1 else f"{len(film)} frames"
