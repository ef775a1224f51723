"""Encode images as a GIF with pillow, or as an MP4 with ffmpeg, which may not be installed."""

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
"""Width of a film in pixels, by suffix; a GIF that would have too many bytes is scaled down."""
GIF_SCALES = (1.0, 0.84, 0.7, 0.5, 0.35)
"""Scale factors that are tried in order until the GIF is small enough."""
PALETTE_SIZE = 128
"""Number of colours of a GIF; the frames have few colours, and a larger palette would make the file larger."""
FILM_COMMENT = b"a film by proxlearn"
"""The GIF comment that identifies a film of this package."""
HOLD_SECONDS = 2.0
"""Additional seconds for which the last frame is shown."""
FRAME_RATE = 25
"""Frames per second of an MP4."""
INSTALL = "write a .gif file, install ffmpeg, or run `pip install 'proxlearn[film]'`"


def check_ending(path: Path) -> None:
    """Raise InputError if a film cannot be written in the format that the suffix of ``path`` denotes."""
    if path.suffix.lower() not in WIDTHS:
        format_name = f"{path.suffix} file" if path.suffix else "file without an ending"
        raise InputError(f"cannot write a film as a {format_name}", "give a file name that ends in .mp4 or .gif")
    if path.suffix.lower() == ".mp4":
        find_ffmpeg()


def find_ffmpeg() -> str:
    """Return the path of ffmpeg, from the PATH or from imageio-ffmpeg; raise InputError if it is not found."""
    on_path = shutil.which("ffmpeg")
    if on_path is not None:
        return on_path
    try:
        import imageio_ffmpeg

        packaged: str = imageio_ffmpeg.get_ffmpeg_exe()
        return packaged
    except (ImportError, RuntimeError) as error:
        raise InputError("an .mp4 file needs ffmpeg, which is not installed", INSTALL) from error


def gif(images: Iterable[Image.Image], frame_seconds: float, most_bytes: int) -> bytes:
    """Return the images as a looping GIF, scaled down if it would have more than ``most_bytes`` bytes.

    Raise InputError if the GIF is too large even at the smallest scale.
    """
    frames = list(images)
    for scale in GIF_SCALES:
        content = _encode_gif(frames, scale, frame_seconds)
        if len(content) <= most_bytes:
            return content
    remedy = "choose smaller values of --frames or --particles, or write an .mp4 file"
    raise InputError(f"the GIF is too large even at the smallest scale ({len(content) / 1e6:.1f} MB)", remedy)


def is_film(content: bytes) -> bool:
    """Return whether ``content`` is a GIF that this package wrote.

    A GIF that version 0.1.0 wrote has no comment and is recognised by its size in pixels.
    """
    if not content.startswith((b"GIF87a", b"GIF89a")):
        return False
    size = tuple(int.from_bytes(content[i : i + 2], "little") for i in (6, 8))
    width = WIDTHS[".gif"]
    return FILM_COMMENT in content or size in {(round(width * s), round(width * 9 / 16 * s)) for s in GIF_SCALES}


def _encode_gif(frames: list[Image.Image], scale: float, frame_seconds: float) -> bytes:
    size = (round(frames[0].width * scale), round(frames[0].height * scale))
    resized = [frame if scale == 1 else frame.resize(size, Image.Resampling.LANCZOS) for frame in frames]
    # All frames share one palette without dithering, so that unchanged pixels keep their colour and take no space.
    sample = Image.new("RGB", (size[0], 3 * size[1]))
    for row, index in enumerate((0, len(resized) // 2, -1)):
        sample.paste(resized[index], (0, row * size[1]))
    palette = _build_palette(sample)
    first, *rest = (frame.quantize(palette=palette, dither=Image.Dither.NONE) for frame in resized)
    durations = [round(1000 * frame_seconds)] * len(rest) + [round(1000 * (frame_seconds + HOLD_SECONDS))]
    file = io.BytesIO()
    first.save(
        file, "GIF", save_all=True, append_images=rest, duration=durations, loop=0, optimize=False, comment=FILM_COMMENT
    )
    return file.getvalue()


def _build_palette(sample: Image.Image) -> Image.Image:
    """Return a palette of the most common colours, and of further colours that cover the rare ones."""
    colours, counts = np.unique(np.asarray(sample).reshape(-1, 3), axis=0, return_counts=True)
    common = colours[np.argsort(-counts, kind="stable")].tolist()
    covering = (
        np.array(sample.quantize(PALETTE_SIZE // 2, Image.Quantize.MAXCOVERAGE).getpalette()).reshape(-1, 3).tolist()
    )
    # Pillow compares the first six bits of a channel, so only the most common of the colours with the same bits is
    # kept.
    kept: dict[tuple[int, ...], tuple[int, ...]] = {}
    for candidates, limit in ((common, PALETTE_SIZE // 2), (covering, PALETTE_SIZE)):
        for colour in candidates:
            if len(kept) < limit:
                kept.setdefault(tuple(channel >> 2 for channel in colour), tuple(colour))
    palette = Image.new("P", (1, 1))
    palette.putpalette([channel for colour in kept.values() for channel in colour])
    return palette


def mp4(images: Iterable[Image.Image], frame_seconds: float) -> bytes:
    """Return the images as an MP4 video in H.264, which all browsers can play."""
    ffmpeg, repeats = find_ffmpeg(), max(1, round(frame_seconds * FRAME_RATE))
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryFile() as messages:
        path = Path(folder) / "film.mp4"
        remaining = iter(images)
        first = last = next(remaining)
        command = _ffmpeg_command(ffmpeg, first.size, path)
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=messages)
        assert process.stdin is not None
        try:
            with process.stdin as stream:
                for last in itertools.chain((first,), remaining):
                    for _ in range(repeats):
                        stream.write(last.tobytes())
                for _ in range(round(HOLD_SECONDS * FRAME_RATE)):
                    stream.write(last.tobytes())
            failed = process.wait() != 0
        except BrokenPipeError:
            failed = True
        finally:
            process.kill()
            process.wait()
        if failed:
            messages.seek(0)
            line = (messages.read().decode(errors="replace").strip().splitlines() or ["no reason given"])[0]
            raise RunError(f"ffmpeg could not write the film: {line[:200]}", "write a .gif file instead")
        return path.read_bytes()


def _ffmpeg_command(ffmpeg: str, size: tuple[int, int], path: Path) -> list[str]:
    source = ["-f", "rawvideo", "-pix_fmt", "rgb24", "-s", f"{size[0]}x{size[1]}", "-r", str(FRAME_RATE), "-i", "-"]
    encoding = ["-an", "-c:v", "libx264", "-pix_fmt", "yuv420p", "-crf", "20", "-movflags", "+faststart"]
    return [ffmpeg, "-loglevel", "error", *source, *encoding, str(path)]
