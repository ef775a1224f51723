"""Settings of the documentation site; `make docs` builds it without a network and executes no example."""

from __future__ import annotations

import importlib.util
import os
import re
import sys
from pathlib import Path
from typing import Any

from docutils import nodes

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

import api_pages  # noqa: E402
import reference_pages  # noqa: E402
import result_pages  # noqa: E402

from proxlearn import __version__  # noqa: E402

project = "proxlearn"
author = "proxlearn developers"
copyright = "proxlearn developers"
version = release = __version__
extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.napoleon",
    "sphinx.ext.mathjax",
    "sphinx_copybutton",
    "sphinx_design",
    "sphinxcontrib.bibtex",
]
# Repeated on a page with its tables.
exclude_patterns = ["_build", "reproduction.md"]

myst_enable_extensions = ["colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 4
bibtex_bibfiles = ["references.bib"]
bibtex_default_style = "plain"
bibtex_reference_style = "author_year"

autodoc_typehints = "none"
autodoc_member_order = "bysource"
autosummary_generate = False
napoleon_google_docstring = False
napoleon_use_rtype = False
# Types of other projects (Tensor, ndarray) and words such as "optional" have no page here; names of proxlearn must.
nitpick_ignore_regex = [("py:.*", r"(?!proxlearn\.).*")]

# Quotes and dashes stay as they are typed, because most of them belong to commands.
smartquotes = False
html_theme = "furo"
html_title = f"proxlearn {__version__}"
html_static_path = ["_static"]
html_show_sphinx = False
html_copy_source = False
html_theme_options = {"top_of_page_buttons": [], "footer_icons": []}
html_css_files = ["site.css"]
pygments_style = "default"
pygments_dark_style = "github-dark"
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True

# The package sphinx-mathjax-offline carries MathJax 3 with its fonts. Its own extension copies all of it (17 MB); one
# script and the fonts are enough.
mathjax_path = "mathjax/tex-chtml-full.js"
mathjax3_config = {"options": {"enableMenu": False}, "tex": {"tags": "none"}}


def mathjax_folder() -> Path:
    """Return the folder of MathJax in the installed package, whose name is not an identifier."""
    spec = importlib.util.find_spec("sphinx-mathjax-offline")
    if spec is None or spec.origin is None:
        raise RuntimeError("sphinx-mathjax-offline is not installed; run `make setup`")
    return Path(spec.origin).parent / "static" / "mathjax"


# Tables of results and of config keys are wide: more room for the text, and smaller cells that wrap less. In the dark
# theme, pictures are inverted: their ground becomes dark, and the rotation restores the hues.
INVERTED = ".content img { filter: invert(0.92) hue-rotate(180deg); }"
CSS = f"""\
.content {{ width: 54em; }}
table.docutils {{ font-size: 0.85rem; }}
table.docutils td code, td.short {{ white-space: nowrap; }}
table.docutils td, table.docutils th {{ vertical-align: top; }}
td .column {{ display: none; }}
code.literal .pre {{ white-space: nowrap; }}
div.highlight-text pre {{ white-space: pre-wrap; font-size: 0.75rem; }}
.content img {{ background: #fff; }}
mjx-container mjx-assistive-mml {{ max-width: 100%; }}
body[data-theme="dark"] {INVERTED}
@media (prefers-color-scheme: dark) {{ body:not([data-theme="light"]) {INVERTED} }}
@media (max-width: 46em) {{
  h1 {{ font-size: 1.9em; }}
  h2 {{ font-size: 1.5em; }}
  table.docutils td code {{ white-space: normal; }}
  div.highlight-text pre {{ white-space: pre; }}
  div.highlight pre {{ font-size: 0.75rem; }}
  div.math {{ overflow-x: auto; }}
  div.math span.eqno {{ position: static; float: none; transform: none; display: block; text-align: right; }}
  table.stacked, table.stacked tbody {{ display: block; }}
  table.stacked thead, table.stacked td:empty {{ display: none; }}
  table.stacked tr {{ display: block; padding: 0.5em 0; border-bottom: 1px solid var(--color-table-border); }}
  table.stacked td {{ display: block; border: 0 !important; padding: 0.1em 0.5em; white-space: normal; }}
  table.stacked td p {{ display: inline; }}
  table.stacked td .column {{ display: inline; color: var(--color-foreground-muted); }}
}}
"""


def write_generated(app: Any) -> None:
    """Write the generated pages and copy MathJax, before Sphinx looks for its sources."""
    reference_pages.write(HERE)
    api_pages.write(HERE)
    result_pages.write(HERE)
    reference_pages.write_changed(HERE / "_static" / "site.css", CSS)
    scripts = mathjax_folder()
    fonts = sorted((scripts / "output" / "chtml" / "fonts" / "woff-v2").glob("*.woff"))
    for path in (scripts / "tex-chtml-full.js", *fonts):
        result_pages.copy_changed(path, HERE / "_static" / "mathjax" / path.relative_to(scripts))


def keep_colon(app: Any, what: str, name: str, value: Any, options: Any, lines: list[str]) -> None:
    """Insert an empty line before an attribute's docstring, because napoleon reads text before a colon as a type."""
    if what in ("attribute", "property", "data") and lines and ":" in lines[0]:
        lines.insert(0, "")


def adapt_tables(app: Any, doctree: nodes.document, docname: str) -> None:
    """Mark cells that must not wrap, and prepare tables with long texts in many columns for narrow screens.

    On a narrow screen, such a table has one line per cell, which begins with the name of the column.
    """
    for cell in doctree.findall(nodes.entry):
        text = cell.astext()
        if len(text) <= 12 or (len(text) <= 40 and not re.search(r"[A-Za-z]{4}", text)):
            cell["classes"].append("short")
    for table in doctree.findall(nodes.table):
        heads = [[cell.astext() for cell in head.findall(nodes.entry)] for head in table.findall(nodes.thead)]
        rows = [list(row.findall(nodes.entry)) for body in table.findall(nodes.tbody) for row in body]
        if not heads or len(heads[0]) < 3 or max(len(cell.astext()) for row in rows for cell in row) <= 40:
            continue
        table["classes"].append("stacked")
        for row in rows:
            for name, cell in list(zip(heads[0], row, strict=True))[1:]:
                if cell.children:
                    cell.insert(0, nodes.inline("", f"{name}: ", classes=["column"]))
    # Sphinx and napoleon put two hyphens before the description of a parameter or a result.
    for text in list(doctree.findall(nodes.Text)):
        if text.startswith(" -- "):
            text.parent.replace(text, nodes.Text(text.replace(" -- ", " \N{EN DASH} ", 1)))


def setup(app: Any) -> None:
    # Help texts are wrapped to the width of a page.
    os.environ["COLUMNS"] = "100"
    app.connect("doctree-resolved", adapt_tables)
    app.connect("config-inited", lambda app, config: write_generated(app))
    # Before napoleon, which has the priority 500.
    app.connect("autodoc-process-docstring", keep_colon, priority=400)
