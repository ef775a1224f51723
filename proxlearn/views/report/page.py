"""Render a self-contained HTML page about runs and sweeps; the page makes requests only with `report --watch`.

Run folders may come from an untrusted source. Their content is embedded as JSON in which no HTML tag can begin, and the
script inserts it as text. Only the script of the page can run, because the content security policy identifies it by its
checksum.
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
from proxlearn.views.report.cloud_payload import MOST_CLOUDS, CloudLimits, cloud_payload, limits_for
from proxlearn.views.report.payload import Table, page_payload
from proxlearn.views.report.report_runs import RunEntry, gather_runs

STYLES = ("uplot.min", "page")
SCRIPTS = ("uplot.min", "base", "charts", "cloud_and_function", "page")
# These characters are escaped in the JSON text, so that they can neither begin a tag nor end a line of the script.
JSON_ESCAPES = {ord(character): f"\\u{ord(character):04x}" for character in "<>&\u2028\u2029"}
PLACEHOLDER = re.compile(r"\{\{(\w+)\}\}")


class PageBuilder:
    """A builder of page data that reads the cloud of a run again only if the checkpoints or the limits have changed."""

    def __init__(self, folders: list[Path]) -> None:
        self.folders = folders
        self._clouds: dict[Any, dict[str, Any] | None] = {}

    def data(self, progress: bool = False) -> dict[str, Any]:
        """Return the data of the page, read from the current contents of the folders."""
        report = gather_runs(self.folders)
        limits = limits_for(min(len(report.runs), MOST_CLOUDS))
        entries = tqdm(report.runs[:MOST_CLOUDS], "clouds", unit="run", disable=not progress, file=sys.stderr)
        clouds = [self._cloud(entry, limits) for entry in entries]
        return page_payload(report, clouds + [None] * (len(report.runs) - len(clouds)))

    def _cloud(self, entry: RunEntry, limits: CloudLimits) -> dict[str, Any] | None:
        key = (entry.run.path, limits, tuple(list_checkpoints(RunFolder(entry.run.path).checkpoints)))
        if key not in self._clouds:
            # Only one cloud per run is kept, because clouds of older checkpoints are not needed again.
            self._clouds = {other: cloud for other, cloud in self._clouds.items() if other[0] != key[0]}
            self._clouds[key] = cloud_payload(entry.run, limits)
        return self._clouds[key]


def render_page(data: dict[str, Any], watch: bool = False) -> str:
    """Return the HTML of the page; if ``watch`` is true, the page may request newer data from its server."""
    styles = "\n".join(read_asset(f"{name}.css") for name in STYLES)
    # The library's licence must accompany every copy of the library.
    licence = f"/*! uPlot\n{read_asset('uplot.LICENSE')}*/"
    scripts = "\n".join((licence, *(read_asset(f"{name}.js") for name in SCRIPTS)))
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
        "title": escape_html(data["title"]),
        "style": styles,
        "tables": static_tables(data),
        "data": as_json(data | {"watch": watch}),
        "script": scripts,
    }
    # All placeholders are replaced in one pass, so that a placeholder inside inserted text is not replaced.
    return PLACEHOLDER.sub(lambda match: parts[match[1]], read_asset("page.html"))


def as_json(data: dict[str, Any]) -> str:
    """Return data as JSON text that is safe inside an HTML script element."""
    return json.dumps(data, allow_nan=False, separators=(",", ":")).translate(JSON_ESCAPES)


def read_asset(name: str) -> str:
    """Return the text of a file in the assets folder."""
    return resources.files("proxlearn.views.report").joinpath("assets", name).read_text(encoding="utf-8")


def escape_html(text: str) -> str:
    """Escape text for HTML; a lone surrogate, which UTF-8 cannot encode, becomes a question mark."""
    return html.escape(text.encode("utf-8", "replace").decode())


def static_tables(data: dict[str, Any]) -> str:
    """Return the tables as HTML, for browsers without JavaScript."""
    parts = [f"<h1>{escape_html(data['title'])}</h1>"]
    for sweep in data["sweeps"]:
        parts += [f"<h2>{escape_html(sweep['name'])}</h2><p>{escape_html(sweep['counts'])}</p>"]
        parts += [_html_table(sweep["table"])]
    for run in data["runs"]:
        about = {"columns": ["property", "value"], "rows": run["about"]}
        note = f"<p>{escape_html(run['results_note'])}</p>" if run["results_note"] else ""
        parts += [f"<h2>{escape_html(run['name'])}</h2>{note}", _html_table(run["results"]), _html_table(about)]
    return "\n".join(parts)


def _html_table(table: Table | None) -> str:
    if table is None:
        return ""
    head = "".join(f"<th>{escape_html(name)}</th>" for name in table["columns"])
    rows = "".join("<tr>" + "".join(f"<td>{escape_html(cell)}</td>" for cell in row) + "</tr>" for row in table["rows"])
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>'
