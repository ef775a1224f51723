"""Settings of the documentation site; `make docs` builds it without a network and executes no example."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path
from typing import Any

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


# Tables of results and of config keys are wide: more room for the text, and smaller cells that wrap less.
CSS = """\
.content { width: 54em; }
table.docutils { font-size: 0.85rem; }
table.docutils td code { white-space: nowrap; }
table.docutils td, table.docutils th { vertical-align: top; }
figure img, .content img { background: #fff; }
@media (max-width: 46em) {
  table.docutils td code { white-space: normal; }
  div.math { overflow-x: auto; }
  div.math span.eqno { position: static; float: none; transform: none; display: block; text-align: right; }
}
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


def setup(app: Any) -> None:
    # Help texts are wrapped to the width of a page.
    os.environ["COLUMNS"] = "100"
    app.connect("config-inited", lambda app, config: write_generated(app))
    # Before napoleon, which has the priority 500.
    app.connect("autodoc-process-docstring", keep_colon, priority=400)
