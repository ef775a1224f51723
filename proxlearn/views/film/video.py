"""Pictures as a file that plays: GIF with pillow, which is always here, or MP4 with ffmpeg, where there is one."""

from __future__ import annotations

import io
import itertools
import shutil
import subprocess
import tempfile
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from PIL import Image

from proxlearn.errors import InputError, RunError

WIDTHS = {".mp4": 1280, ".gif": 960}
"""In pixels; a GIF that would be too large becomes narrower."""
SMALLER = (1.0, 0.84, 0.7, 0.5, 0.35)
PALETTE = 128
FILM_COMMENT = b"a film by proxlearn"
"""A comment in the GIF, by which it is known as ours."""
"""Colours of a GIF: the pictures have few, and every one costs."""
HOLD_SECONDS = 2.0
"""How much longer the last picture stays."""
PER_SECOND = 25
INSTALL = "write a .gif, install ffmpeg, or pip install 'proxlearn[film]'"


def check_ending(path: Path) -> None:
    """Refuse what cannot be written, before anything is drawn."""
    if path.suffix.lower() not in WIDTHS:
        raise InputError(f"a film is no {path.suffix or 'file without an ending'}", "name a file.mp4 or a file.gif")
    if path.suffix.lower() == ".mp4":
        find_ffmpeg()


def find_ffmpeg() -> str:
    """The ffmpeg on the PATH, or the one that a package carries."""
    found = shutil.which("ffmpeg")
    if found is not None:
        return found
    try:
        import imageio_ffmpeg

        carried: str = imageio_ffmpeg.get_ffmpeg_exe()
        return carried
    except (ImportError, RuntimeError) as error:
        raise InputError("there is no ffmpeg here to write an .mp4 with", INSTALL) from error


def gif(pictures: Iterable[Image.Image], seconds: float, most_bytes: int) -> bytes:
    """An endless GIF, ``seconds`` a picture, made narrower until it has at most ``most_bytes``."""
    drawn = list(pictures)
    for scale in SMALLER:
        made = _gif(drawn, scale, seconds)
        if len(made) <= most_bytes:
            return made
    remedy = "ask for fewer --frames or --particles, or for an .mp4"
    raise InputError(f"the smallest GIF of {len(drawn)} frames still has {len(made) / 1e6:.1f} MB", remedy)


def is_film(content: bytes) -> bool:
    """Whether a GIF is one of ours; those of version 0.1.0 have no mark, and are known by their size."""
    if not content.startswith((b"GIF87a", b"GIF89a")):
        return False
    size = tuple(int.from_bytes(content[i : i + 2], "little") for i in (6, 8))
    width = WIDTHS[".gif"]
    return FILM_COMMENT in content or size in {(round(width * s), round(width * 9 / 16 * s)) for s in SMALLER}


def _gif(drawn: list[Image.Image], scale: float, seconds: float) -> bytes:
    size = (round(drawn[0].width * scale), round(drawn[0].height * scale))
    resized = [each if scale == 1 else each.resize(size, Image.Resampling.LANCZOS) for each in drawn]
    # One palette for all, and no dithering: what does not move keeps its colour, and costs nothing.
    sample = Image.new("RGB", (size[0], 3 * size[1]))
    for row, place in enumerate((0, len(resized) // 2, -1)):
        sample.paste(resized[place], (0, row * size[1]))
    palette = _palette(sample)
    first, *rest = (each.quantize(palette=palette, dither=Image.Dither.NONE) for each in resized)
    times = [round(1000 * seconds)] * len(rest) + [round(1000 * (seconds + HOLD_SECONDS))]
    file = io.BytesIO()
    first.save(
        file, "GIF", save_all=True, append_images=rest, duration=times, loop=0, optimize=False, comment=FILM_COMMENT
    )
    return file.getvalue()


def _palette(sample: Image.Image) -> Image.Image:
    """The most common colours as they are, and others that cover what is rare: a few dots among much paper."""
    colours, counts = np.unique(np.asarray(sample).reshape(-1, 3), axis=0, return_counts=True)
    common = colours[np.argsort(-counts, kind="stable")].tolist()
    covering = np.array(sample.quantize(PALETTE // 2, Image.Quantize.MAXCOVERAGE).getpalette()).reshape(-1, 3).tolist()
    # Pillow looks colours up by their first six bits: of two that are the same to it, only the more common one is kept.
    kept: dict[tuple[int, ...], tuple[int, ...]] = {}
    for some, most in ((common, PALETTE // 2), (covering, PALETTE)):
        for colour in some:
            if len(kept) < most:
                kept.setdefault(tuple(part >> 2 for part in colour), tuple(colour))
    palette = Image.new("P", (1, 1))
    palette.putpalette([part for colour in kept.values() for part in colour])
    return palette


def mp4(pictures: Iterable[Image.Image], seconds: float) -> bytes:
    """H.264 as every browser plays it, ``seconds`` a picture."""
    ffmpeg, times = find_ffmpeg(), max(1, round(seconds * PER_SECOND))
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryFile() as said:
        path = Path(folder) / "film.mp4"
        following = iter(pictures)
        first = last = next(following)
        command = _command(ffmpeg, first.size, path)
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=said)
        assert process.stdin is not None
        try:
            with process.stdin as film:
                for last in itertools.chain((first,), following):
                    for _ in range(times):
                        film.write(last.tobytes())
                for _ in range(round(HOLD_SECONDS * PER_SECOND)):
                    film.write(last.tobytes())
            failed = process.wait() != 0
        except BrokenPipeError:
            failed = True
        finally:
            process.kill()
            process.wait()
        if failed:
            said.seek(0)
            line = (said.read().decode(errors="replace").strip().splitlines() or ["no reason given"])[0]
            raise RunError(f"ffmpeg could not write the film: {line[:200]}", "write a .gif instead")
        return path.read_bytes()


def _command(ffmpeg: str, size: tuple[int, int], path: Path) -> list[str]:
    source = ["-f", "rawvideo", "-pix_fmt", "rgb24", "-s", f"{size[0]}x{size[1]}", "-r", str(PER_SECOND), "-i", "-"]
    picture = ["-an", "-c:v", "libx264", "-pix_fmt", "yuv420p", "-crf", "20", "-movflags", "+faststart"]
    return [ffmpeg, "-loglevel", "error", *source, *picture, str(path)]
