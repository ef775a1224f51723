"""The site of docs/: it builds without warning and network, links resolve, and generated pages agree with the code.

README.md and the pages of docs/start: every command and code block runs, and prints what is shown.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import time
from collections import defaultdict
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from api_pages import API_GROUPS, public_objects
from filelock import FileLock
from reference_pages import PACKAGE, config_page, messages
from result_pages import PAPER_PAGES, conclusion, readme_table, speed_page

import proxlearn as pl
from proxlearn.config.schema import ALL_KEYS
from proxlearn.run.metric_definitions import CLOUD, PROXIMAL_STEP, SCORES, SINGLE_SCORES, definition
from proxlearn.views.bench_views import whole_table
from tests.small_runs import execute, in_new_process, proxlearn
from tests.views.report.pages import chromium, needs_browser

ROOT = Path(__file__).parents[1]
OUTPUTS = ROOT / "outputs"
BUILD = """\
import socket, sys
def refuse(*_):
    raise OSError("the build of the site must not use the network")
socket.socket.connect = socket.getaddrinfo = refuse
from sphinx.cmd.build import main
sys.exit(main(sys.argv[1:]))
"""


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Path:
    """The built site; the workers of pytest-xdist share one."""
    alone = worker_id == "master"
    folder = (tmp_path_factory.mktemp("docs") if alone else tmp_path_factory.getbasetemp().parent) / "site"
    with FileLock(f"{folder}.lock"):
        if not (folder / "index.html").exists():
            options = ("-q", "-n", "-W", "--keep-going", "-d", f"{folder}-trees")
            words = [sys.executable, "-c", BUILD, *options, str(ROOT / "docs"), str(folder)]
            started = time.monotonic()
            done = subprocess.run(words, capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stderr
            assert done.stderr == ""
            assert time.monotonic() - started < 90
    return folder


class Page(HTMLParser):
    """The anchors of a page, and the addresses that it links to or loads."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: set[str] = set()
        self.loaded: set[str] = set()
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        values = {name: value for name, value in attributes if value is not None}
        self.anchors |= {values[name] for name in ("id", "name") if name in values}
        if tag == "a" and "href" in values:
            self.links.add(values["href"])
        else:
            self.loaded |= {values[name] for name in ("src", "href") if name in values}


@pytest.fixture(scope="session")
def pages(site: Path) -> dict[Path, Page]:
    return {path: Page(path) for path in sorted(site.rglob("*.html"))}


def test_every_link_and_anchor_resolves_and_nothing_is_loaded_from_outside(pages: dict[Path, Page]) -> None:
    assert len(pages) >= 30
    broken = defaultdict(list)
    for path, page in pages.items():
        for address in page.links | page.loaded:
            parts = urlsplit(address)
            if parts.scheme in ("http", "https", "mailto"):
                if address in page.loaded:
                    broken[path.name].append(address)
                continue
            if parts.scheme == "data":
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            exists = target.is_file() and (not parts.fragment or target.suffix != ".html" or target in pages)
            if not exists or (parts.fragment and target in pages and not has_anchor(pages[target], parts.fragment)):
                broken[path.name].append(address)
    assert broken == {}


def has_anchor(page: Page, fragment: str) -> bool:
    return unquote(fragment) in page.anchors


@needs_browser
def test_pages_ask_no_other_machine_render_equations_and_fit_a_phone(
    site: Path, pages: dict[Path, Page], tmp_path: Path
) -> None:
    rendered = 0
    with chromium(tmp_path / "profile") as browser:
        for path in pages:
            browser.open(path.as_uri())
            equations = browser("document.querySelectorAll('.math').length")
            wait = time.monotonic() + 20
            while browser("document.querySelectorAll('mjx-container').length") < equations:
                assert time.monotonic() < wait, f"{path.name}: equations are not rendered"
                time.sleep(0.05)
            assert browser("document.querySelectorAll('mjx-merror, [data-mjx-error]').length") == 0, path.name
            rendered += equations
            for width in (390, 1280):
                browser.size(width)
                assert browser("document.documentElement.scrollWidth") <= width, f"{path.name} is wider than {width}"
            requests = {address for address in browser.requests() if not address.startswith("data:")}
            assert {address for address in requests if not address.startswith(site.as_uri())} == set(), path.name
            assert browser.errors() == [], path.name
    # The theory pages have most of the equations.
    assert rendered > 100


def test_the_api_reference_covers_every_public_name(site: Path, pages: dict[Path, Page]) -> None:
    anchors = set().union(*(page.anchors for page in pages.values()))
    names = {name for _, _, group in API_GROUPS.values() for name in public_objects(group)}
    assert names <= anchors
    assert {"proxlearn.Risk.predict", "proxlearn.ProxLearnClassifier.fit", "proxlearn.Run.clouds"} <= anchors


def test_no_page_names_a_folder_of_this_machine(site: Path) -> None:
    for path in site.rglob("*.html"):
        text = path.read_text(encoding="utf-8")
        assert str(ROOT) not in text, path.name
        assert str(Path.home()) not in re.sub(r"https?://\S+", "", text), path.name


def test_no_line_of_a_page_is_hidden_as_a_comment() -> None:
    """The site leaves out a line of Markdown that begins with %, such as the end of a wrapped "5 %"."""
    files = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *OUTPUTS.rglob("*.md")]
    lines = [(file.name, line) for file in files for line in file.read_text(encoding="utf-8").splitlines()]
    assert not [(name, line) for name, line in lines if line.lstrip().startswith("%")]


def test_the_page_of_messages_pairs_every_problem_with_its_remedy() -> None:
    pairs = set(messages(PACKAGE / "core" / "part_checks.py"))
    neuron = "the neuron `...` cannot be evaluated for one particle and one sample"
    assert [remedy for problem, remedy in pairs if problem == neuron] == [
        "check the blocks of theta and the operations; x has ..."
    ]
    (remedy,) = (
        remedy for problem, remedy in pairs if problem.startswith("the loss `...` is not convex in f: for y =")
    )
    assert remedy.startswith("define a `value` that is convex in f")


def test_the_config_page_has_every_key_once() -> None:
    rows = re.findall(r"^\| `([\w./]+)` \| [^|]+\| [^|]*\| ", config_page(), re.MULTILINE)
    without_page = {"dataset", "device", "logger", "recipe", "experiment", "hydra.sweep.subdir", "hydra/launcher"}
    for key in set(ALL_KEYS) - without_page:
        assert rows.count(key) == 1, key


@pytest.mark.parametrize(
    "settings", [("dataset=sine", "recipe=tuned"), ("dataset=wdbc", "validation_fraction=0.2"), ("dataset=wine",)]
)
def test_every_column_of_a_run_has_a_definition(
    settings: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    numbers = (
        "N=10",
        "steps=2",
        "beta=10",
        "h=0.01",
        "epsilon=1",
        *(("init_scale=1",) if len(settings[-1]) == 12 else ()),
    )
    run = pl.train(*settings, *numbers, verbose=False, plots=False)
    columns = list(run.metrics.columns)
    assert [column for column in columns if definition(column) is None] == []
    assert set(CLOUD) - {"h", "beta", "epsilon"} | set(PROXIMAL_STEP) <= set(columns)
    scores = {re.sub(r"^(train|validation|test)_|_(weighted|unweighted)$", "", column) for column in columns}
    assert scores & set(SCORES)
    assert definition("train_accuracy_unweighted_saturated") == SINGLE_SCORES["accuracy_unweighted_saturated"]
    assert definition("train_nonsense_weighted") is None


def test_result_pages_begin_with_the_conclusions_of_outputs(site: Path) -> None:
    text = (site / "results" / "reproduction.html").read_text(encoding="utf-8")
    words = " ".join(re.sub(r"<[^>]+>", "", text).split())
    for name in PAPER_PAGES:
        first = conclusion(OUTPUTS / f"{name}.md").split(";")[0].split(".")[0]
        assert first in words.replace("&#39;", "'").replace("&#x27;", "'"), name


def test_the_speed_page_shows_the_committed_figures() -> None:
    results = json.loads((OUTPUTS / "bench" / "whole.json").read_text(encoding="utf-8"))
    lines = [line for line in whole_table(results).splitlines() if line.startswith("|")]
    assert len(lines) == 2 + 6
    assert "\n".join(lines) in speed_page()


ROOT_README_EXAMPLES = Path(__file__).parents[1]
README = (ROOT_README_EXAMPLES / "README.md").read_text(encoding="utf-8")
MAKEFILE = (ROOT_README_EXAMPLES / "Makefile").read_text(encoding="utf-8")
PAGES = ("README.md", "docs/start/install.md", "docs/start/quickstart.md")
BLOCK = re.compile(
    r"^```(bash|python)( not run: .+)?\n(.*?)^```$(?:\s*^```text\n(.*?)^```$)?", re.MULTILINE | re.DOTALL
)
OUTSIDE = {"https://openreview.net/forum?id=vyRBsqj5iG", "https://github.com/zalexis12/Proximal-Mean-Field-Learning"}
PROSE = (ROOT_README_EXAMPLES / "docs" / "tutorials").exists()
"""Whether the tutorials, how-to guides and theory pages are there; they are another part of the site."""


def recipe(target: str) -> str:
    """Return the commands of a target of the Makefile, with a proxlearn of the path and few, small steps."""
    (lines,) = re.findall(rf"^{target}: .*\n((?:\t.*\n)+)", MAKEFILE, re.MULTILINE)
    return (
        lines.replace("\t@", "").replace("\t", "").replace("$(BIN)/", "").replace("beta=0.05", "beta=0.05 N=20 steps=5")
    )


def matches(shown: str, printed: str) -> bool:
    """Return whether an output is the shown one; ``...`` stands for any lines, and seconds and numbers may vary.

    A number agrees if it differs by at most 0.06: the bits depend on the processor, and with them the candidate that a
    selection prefers. The step at which a selection ends is therefore not compared.
    """
    number = r"-?\d+(?:\.\d+)?(?:e[+-]?\d+)?"
    pattern = r".*".join(
        re.sub(number, "NUMBER", re.escape(part).replace(r"\-", "-").replace(r"\.", ".")).replace(
            "NUMBER", f"({number})"
        )
        for part in shown.split("...\n")
    )
    # Columns of a table are as wide as their longest number.
    match = re.search(re.sub(r"(?:\\ )+", r" +", pattern), printed, re.DOTALL)
    if match is None:
        return False
    pairs = zip(re.findall(number, shown), match.groups(), strict=True)
    durations = rf"at step ({number}) after ({number}) s(?:, of which the selection took ({number}) s)?"
    varying = {text for texts in re.findall(durations, shown) for text in texts}
    return all(abs(float(ours) - float(theirs)) <= 0.06 or theirs in varying for theirs, ours in pairs)


@pytest.mark.parametrize("page", PAGES)
def test_every_block_runs_and_prints_what_is_shown(page: str, tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    for name, line in (("proxlearn", f'exec "{sys.executable}" -m proxlearn "$@"'), ("make", f"{recipe('train')}")):
        command = tmp_path / "bin" / name
        command.write_text(f"#!/bin/sh\n{line}\n", encoding="utf-8")
        command.chmod(0o755)
    paths = {"PATH": f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}", "PYTHONPATH": str(ROOT_README_EXAMPLES)}
    blocks = BLOCK.findall((ROOT_README_EXAMPLES / page).read_text(encoding="utf-8"))
    assert blocks
    before = ""
    for language, reason, code, shown in blocks:
        if reason:
            continue
        # `make test` runs this test.
        code = re.sub(r"^make test .*\n", "", code, flags=re.MULTILINE)
        before = before + code if language == "python" else before
        if language == "python":
            parts = [in_new_process(execute, before, cwd=tmp_path)]
        else:
            parts = [run_line(line, tmp_path, paths) for line in code.splitlines()]
        for done in parts:
            assert done.returncode == 0, done.stderr
        printed = "".join(done.stdout for done in parts)
        assert matches(shown, printed), printed


def run_line(line: str, folder: Path, paths: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Run a line of a page; a command of proxlearn alone needs no shell."""
    if line.startswith("proxlearn ") and not re.search(r"[|<>;&$`*\\]", line):
        return proxlearn(*shlex.split(line, comments=True)[1:], cwd=folder)
    words = ["sh", "-e", "-c", line]
    return subprocess.run(words, cwd=folder, env=os.environ | paths, capture_output=True, text=True, check=False)


def test_make_train_says_what_will_be_seen_and_names_the_fast_alternative() -> None:
    said = recipe("train").partition("\nproxlearn train")[0]
    assert "risk rises" in said
    assert "proxlearn train dataset=wdbc recipe=tuned" in said
    assert recipe("train").endswith("\nproxlearn train dataset=wdbc beta=0.05 N=20 steps=5\n")


def test_the_readme_is_short_and_has_two_outside_addresses() -> None:
    assert README.count("\n") <= 150
    assert set(re.findall(r"https?://[^\s)>]+", README)) == OUTSIDE


def test_the_table_of_results_is_the_generated_one() -> None:
    assert readme_table() in README, "run `python docs/result_pages.py`, which writes the table again"


def test_every_link_of_the_readme_names_a_file() -> None:
    targets = [target for target in re.findall(r"\]\(([^)\s]+)\)", README) if target not in OUTSIDE]
    assert len(targets) > 20
    prose = ("docs/tutorials", "docs/howto", "docs/theory")
    expected = [target for target in targets if PROSE or not target.startswith(prose)]
    assert [target for target in expected if not (ROOT_README_EXAMPLES / target).exists()] == []
