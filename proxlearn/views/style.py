"""How every figure looks: sizes, colours, and saving as PNG and PDF; no global state of matplotlib is touched."""

from __future__ import annotations

import io
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from proxlearn.files.atomic import write_atomically

WEIGHTED, UNWEIGHTED, THIRD, GREY = "#0b6e99", "#d1602b", "#5b8c3a", "#6b6b6b"
ESTIMATE_COLOURS = {"weighted": WEIGHTED, "unweighted": UNWEIGHTED}
# Where the two estimates agree, the dashes lie upon the broader line and both are seen.
ESTIMATE_LINES: dict[str, dict[str, Any]] = {
    "weighted": {"color": WEIGHTED, "linestyle": "-", "linewidth": 2.6},
    "unweighted": {"color": UNWEIGHTED, "linestyle": "--", "linewidth": 1.2},
}
LARGEST_DRAWN = 1e100
"""Axes square and add up what they show, so that float64's own limit is too much for them."""
RC: Any = {
    "font.size": 9,
    "axes.titlesize": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#e4e4e4",
    "grid.linewidth": 0.6,
    "legend.frameon": False,
    "legend.fontsize": 8,
    "pdf.fonttype": 42,
}


def house_style() -> AbstractContextManager[None]:
    """The settings under which everything is drawn; matplotlib's own come back afterwards."""
    return matplotlib.rc_context(RC)


def plain_ticks(axis: Axis) -> None:
    """0.9, not 9 x 10^-1, where a logarithmic axis spans less than a decade."""
    low, high = axis.get_view_interval()
    if high < 10 * low:
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.3g}"))
        axis.set_minor_formatter(FuncFormatter(lambda value, _: f"{value:.3g}"))


def clip_for_drawing(values: Any, log: bool = False) -> Any:
    """Values that an axis cannot hold (1e300 in a diverged run; zero on a logarithmic axis) as gaps in their curve."""
    size = np.abs(values)
    return np.where((size <= LARGEST_DRAWN) & ((np.asarray(values) >= 1 / LARGEST_DRAWN) | (not log)), values, np.nan)


def escape_mathtext(name: str) -> str:
    """A name from a user's table, for matplotlib to write and not to read as a formula: a column called `$a$`."""
    return name.replace("$", r"\$")


def class_colours(count: int) -> list[str]:
    """Colours that tell classes apart: two that the estimates do not use, then a longer cycle."""
    if count == 2:
        return ["#7b4ea3", "#c9a227"]
    cycle = matplotlib.colormaps["tab10" if count <= 10 else "tab20"]
    return [to_hex(cycle(i % cycle.N)) for i in range(count)]


def figure(width: float, height: float, columns: int = 1) -> tuple[Figure, list[Axes]]:
    """A figure of its own with ``columns`` axes in a row, in inches."""
    made = Figure(figsize=(width, height), layout="tight")
    return made, list(made.subplots(1, columns, squeeze=False)[0])


def stacked_axes(width: float, height: float, rows: int) -> tuple[Figure, list[Axes]]:
    """A figure of its own with ``rows`` wide axes below each other, in inches."""
    made = Figure(figsize=(width, height), layout="tight")
    return made, list(made.subplots(rows, 1, squeeze=False)[:, 0])


def save(made: Figure, folder: Path, name: str, about: str = "") -> list[Path]:
    """``name``.png and ``name``.pdf in the folder; ``about`` goes into their metadata."""
    paths = [folder / f"{name}.{suffix}" for suffix in ("png", "pdf")]
    for path in paths:
        # Without the date in it, the same run gives the same file.
        metadata = {"CreationDate": None, "Subject": about} if path.suffix == ".pdf" else {"Description": about}
        # Whole or not at all, and never through a link that someone has put there.
        content = io.BytesIO()
        made.savefig(content, format=path.suffix[1:], dpi=180, metadata=metadata)
        write_atomically(path, content.getvalue())
        # The layout is found once, not again for each file.
        made.set_layout_engine("none")
    return paths
