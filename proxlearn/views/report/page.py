"""One self-contained HTML page about runs and sweeps: it opens from disk, and asks nobody for anything.

Folders may come from anybody: what they hold goes into the page as JSON that no HTML can begin in, and the script puts
it there as text. Only this module's own scripts can run in the page: its policy names them by their checksums.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
import sys
from importlib import resources
from pathlib import Path
from typing import Any

from tqdm import tqdm

from proxlearn.run.checkpoint_file import list_checkpoints
from proxlearn.run.run_folder import RunFolder
from proxlearn.views.report.cloud import MOST_CLOUDS, Size, cloud_data, size_for
from proxlearn.views.report.payload import Table, page_data
from proxlearn.views.report.report_runs import RunEntry, gather_runs

STYLES = ("uplot.min", "page")
SCRIPTS = ("uplot.min", "base", "chart", "zoom", "curves", "canvas", "cloud", "learnt", "tables", "page")
# Nothing in JSON needs these characters as they are, and none of them can then begin a tag or end a line of script.
ESCAPES = {ord(each): f"\\u{ord(each):04x}" for each in "<>&\u2028\u2029"}
PLACE = re.compile(r"\{\{(\w+)\}\}")


class Builder:
    """Makes the data of a page, again and again for one that is watched: a cloud is read once for its checkpoints."""

    def __init__(self, folders: list[Path]) -> None:
        self.folders = folders
        self._clouds: dict[Any, dict[str, Any] | None] = {}

    def data(self, progress: bool = False) -> dict[str, Any]:
        source = gather_runs(self.folders)
        size = size_for(min(len(source.runs), MOST_CLOUDS))
        shown = tqdm(source.runs[:MOST_CLOUDS], "clouds", unit="run", disable=not progress, file=sys.stderr)
        clouds = [self._cloud(each, size) for each in shown]
        return page_data(source, clouds + [None] * (len(source.runs) - len(clouds)))

    def _cloud(self, shown: RunEntry, size: Size) -> dict[str, Any] | None:
        key = (shown.run.path, size, tuple(list_checkpoints(RunFolder(shown.run.path).checkpoints)))
        if key not in self._clouds:
            # Only the newest of each run: those of older checkpoints are not asked for again.
            self._clouds = {other: cloud for other, cloud in self._clouds.items() if other[0] != key[0]}
            self._clouds[key] = cloud_data(shown.run, size)
        return self._clouds[key]


def render_page(data: dict[str, Any], watch: bool = False) -> str:
    """The page with its data in it; one that is watched may ask its own server for newer data."""
    styles = "\n".join(asset(f"{name}.css") for name in STYLES)
    # The library's licence goes wherever the library goes.
    licence = f"/*! uPlot\n{asset('uplot.LICENSE')}*/"
    scripts = "\n".join((licence, *(asset(f"{name}.js") for name in SCRIPTS)))
    checksum = base64.b64encode(hashlib.sha256(scripts.encode()).digest()).decode()
    policy = {
        "default-src": "'none'",
        "script-src": f"'sha256-{checksum}'",
        "style-src": "'unsafe-inline'",
        "connect-src": "'self'" if watch else "'none'",
        "base-uri": "'none'",
        "form-action": "'none'",
    }
    parts = {
        "policy": "; ".join(f"{key} {value}" for key, value in policy.items()),
        "title": escaped(data["title"]),
        "style": styles,
        "tables": static_tables(data),
        "data": as_json(data | {"watch": watch}),
        "script": scripts,
    }
    # In one pass: what is put in is not looked at again.
    return PLACE.sub(lambda place: parts[place[1]], asset("page.html"))


def as_json(data: dict[str, Any]) -> str:
    return json.dumps(data, allow_nan=False, separators=(",", ":")).translate(ESCAPES)


def asset(name: str) -> str:
    return resources.files("proxlearn.views.report").joinpath("assets", name).read_text(encoding="utf-8")


def escaped(text: str) -> str:
    # A file may spell half of a pair of surrogates, which no encoding has.
    return html.escape(text.encode("utf-8", "replace").decode())


def static_tables(data: dict[str, Any]) -> str:
    """The tables for a reader without scripts."""
    parts = [f"<h1>{escaped(data['title'])}</h1>"]
    for sweep in data["sweeps"]:
        parts += [f"<h2>{escaped(sweep['name'])}</h2><p>{escaped(sweep['counts'])}</p>", _table(sweep["table"])]
    for run in data["runs"]:
        about = {"columns": ["what", ""], "rows": run["about"]}
        note = f"<p>{escaped(run['figures_note'])}</p>" if run["figures_note"] else ""
        parts += [f"<h2>{escaped(run['name'])}</h2>{note}", _table(run["figures"]), _table(about)]
    return "\n".join(parts)


def _table(table: Table | None) -> str:
    if table is None:
        return ""
    head = "".join(f"<th>{escaped(name)}</th>" for name in table["columns"])
    rows = "".join("<tr>" + "".join(f"<td>{escaped(each)}</td>" for each in row) + "</tr>" for row in table["rows"])
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>'
