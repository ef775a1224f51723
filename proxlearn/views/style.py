"""The style of all plots: sizes, colours and file formats; the global state of matplotlib is not changed."""

from __future__ import annotations

import io
import math
import warnings
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from proxlearn.files.atomic import write_atomically

WEIGHTED, UNWEIGHTED, THIRD, GREY = "#0b6e99", "#d1602b", "#5b8c3a", "#6b6b6b"
ESTIMATE_COLOURS = {"weighted": WEIGHTED, "unweighted": UNWEIGHTED}
# If the two estimates agree, the thin dashes lie on the broad line, and both remain visible.
ESTIMATE_LINES: dict[str, dict[str, Any]] = {
    "weighted": {"color": WEIGHTED, "linestyle": "-", "linewidth": 2.6},
    "unweighted": {"color": UNWEIGHTED, "linestyle": "--", "linewidth": 1.2},
}
LARGEST_DRAWN = 1e100
"""Largest value that is drawn; matplotlib squares and adds values, and larger ones could overflow."""
SINGLE_PLOT = (5.0, 3.3)
"""Width and height in inches of a plot with one pair of axes."""
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
    """Return a context manager that applies the style and restores the settings of matplotlib afterwards."""
    return matplotlib.rc_context(RC)


def plain_ticks(axis: Axis, few: bool = False) -> None:
    """Use decimal notation (0.9 instead of 9 x 10^-1) on a logarithmic axis that spans less than a decade.

    With ``few``, only the minor ticks 2, 3 and 5 have labels, because all labels would overlap in a narrow panel.
    """
    low, high = axis.get_view_interval()
    if high < 10 * low:
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.3g}"))
        shown = (2, 3, 5) if few and high > 4 * low else range(1, 10)
        axis.set_minor_formatter(
            FuncFormatter(lambda value, _: f"{value:.3g}" if int(f"{value:.0e}"[0]) in shown else "")
        )


def ticks_beyond_curves(axis: Axis) -> None:
    """Set the ticks and limits of a logarithmic axis such that the first and the last tick enclose the data.

    The ticks are 1, 2 and 5 times powers of ten. If there would be fewer than three ticks, ``plain_ticks`` is called
    instead. An axis whose data span three decades or more is not changed.
    """
    low, high = axis.get_data_interval()
    if not 0 < low <= high < 1000 * low:
        return
    ticks = [
        d * 10.0**e for e in range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1) for d in (1, 2, 5)
    ]
    first = max(tick for tick in ticks if tick <= low)
    last = min(tick for tick in ticks if tick >= high)
    if last < 3 * first:
        # Two ticks are not enough to read the curves.
        plain_ticks(axis)
        return
    axis.set_major_locator(FixedLocator([tick for tick in ticks if first <= tick <= last]))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.3g}"))
    axis.set_minor_locator(NullLocator())
    axis.set_view_interval(first, last, ignore=True)


def clip_for_drawing(values: Any, log: bool = False) -> Any:
    """Return the values, with NaN in place of each value that an axis cannot show; a NaN leaves a gap in the curve.

    Examples of such values are 1e300 in a diverged run, and zero on a logarithmic axis (``log=True``).
    """
    size = np.abs(values)
    return np.where((size <= LARGEST_DRAWN) & ((np.asarray(values) >= 1 / LARGEST_DRAWN) | (not log)), values, np.nan)


def escape_mathtext(name: str) -> str:
    """Escape the dollar signs in a name, because matplotlib would parse a column called `$a$` as a formula."""
    return name.replace("$", r"\$")


def class_colours(count: int) -> list[str]:
    """Return a colour per class; for two classes, the colours differ from those of the estimates."""
    if count == 2:
        return ["#7b4ea3", "#c9a227"]
    cycle = matplotlib.colormaps["tab10" if count <= 10 else "tab20"]
    return [to_hex(cycle(i % cycle.N)) for i in range(count)]


def figure(width: float, height: float, columns: int = 1) -> tuple[Figure, list[Axes]]:
    """Create a figure of the given size in inches, with ``columns`` axes side by side."""
    fig = Figure(figsize=(width, height), layout="tight")
    return fig, list(fig.subplots(1, columns, squeeze=False)[0])


def stacked_axes(width: float, height: float, rows: int) -> tuple[Figure, list[Axes]]:
    """Create a figure of the given size in inches, with ``rows`` axes one above the other."""
    fig = Figure(figsize=(width, height), layout="tight")
    return fig, list(fig.subplots(rows, 1, squeeze=False)[:, 0])


def hide_frame(axes: Axes) -> None:
    """Remove the grid and the frame of axes that show an image."""
    axes.grid(False)
    axes.spines[:].set_visible(False)


def save(fig: Figure, folder: Path, name: str, about: str = "") -> list[Path]:
    """Write ``name``.png and ``name``.pdf into the folder, with ``about`` in their metadata; return their paths."""
    paths = [folder / f"{name}.{suffix}" for suffix in ("png", "pdf")]
    for path in paths:
        # The date is left out, so that the same run gives the same file.
        metadata = {"CreationDate": None, "Subject": about} if path.suffix == ".pdf" else {"Description": about}
        # The file is never partial, and a symbolic link under its name is replaced, not followed.
        content = io.BytesIO()
        with warnings.catch_warnings():
            # Characters that the font lacks, such as emoji in the name of a class, are drawn as boxes.
            warnings.filterwarnings("ignore", "Glyph .* missing from font", UserWarning)
            fig.savefig(content, format=path.suffix[1:], dpi=180, metadata=metadata)
        write_atomically(path, content.getvalue())
        # The layout is not computed again for the second file.
        fig.set_layout_engine("none")
    return paths
