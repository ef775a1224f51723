"""Result pages of the site, written at build time from the files in outputs/, and pages that repeat top-level files."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

from reference_pages import table, write_changed

from proxlearn.compare.spec import CELLS
from proxlearn.jobs.result_cache import ResultCache
from proxlearn.views.bench_views import duration, whole_table

ROOT = Path(__file__).resolve().parents[1]
OUTPUTS = ROOT / "outputs"


def write(folder: Path) -> None:
    """Write every result page below ``folder``, and the pages of the project's top-level files."""
    for name, page in WRITTEN.items():
        write_changed(folder / f"{name}.md", page())
    for source in ("readme/film.gif", "readme/report.png", "readme/risk.png"):
        copy_changed(OUTPUTS / source, folder / "_static" / Path(source).name)


def copy_changed(source: Path, target: Path) -> None:
    """Copy a file unless the target already has its size and is newer."""
    if not target.exists() or target.stat().st_size != source.stat().st_size:
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, target)


def repeat(path: Path, offset: int = 1, title: str | None = None) -> str:
    """Return the text of a Markdown file as a section: headings ``offset`` levels lower, pictures found from docs/*/.

    A link to another file of the repository becomes the link to its page, or plain text if it has none.
    """
    text = path.read_text(encoding="utf-8")
    if title is not None:
        text = re.sub(r"\A# .*", f"# {title}", text)

    def link(match: re.Match[str]) -> str:
        mark, words, target = match.groups()
        file = (path.parent / target).resolve()
        if mark:
            return f"![{words}](../../{file.relative_to(ROOT)})"
        if file in PAGES:
            return f"[{words}](../{PAGES[file]})"
        return words if not target.startswith(("http", "#")) else match[0]

    # Code blocks stay as they are.
    parts = re.split(r"(^```.*?^```$)", text, flags=re.MULTILINE | re.DOTALL)
    for number in range(0, len(parts), 2):
        part = re.sub(r"^(#+ )", "#" * offset + r"\1", parts[number], flags=re.MULTILINE)
        parts[number] = re.sub(r"(!?)\[([^\]]*)\]\(([^)\s]+)\)", link, part)
    return "".join(parts).rstrip() + "\n"


def title_of(path: Path) -> str:
    """Return the title of a page in outputs/."""
    return path.read_text(encoding="utf-8").partition("\n")[0].removeprefix("# ")


def conclusion(path: Path) -> str:
    """Return the first paragraph of a page in outputs/, which states its result, and whether results are missing."""
    first, second = path.read_text(encoding="utf-8").split("\n\n")[1:3]
    return " ".join((f"{first} {second}" if second.startswith("**Unfinished**") else first).split())


def conclusions(*names: str) -> str:
    """Return the titles and the first paragraphs of pages in outputs/ as a list."""
    paths = (OUTPUTS / f"{name}.md" for name in names)
    return "".join(f"- **{title_of(path)}**: {conclusion(path)}\n" for path in paths)


PAPER_PAGES = tuple(f"paper/{name}" for name in ("table1", "table2", "table3", "table4", "table5", "shd", "curves"))


def reproduction_page() -> str:
    """Return the page about the paper's experiments: conclusions, rules, differences."""
    text = repeat(ROOT / "docs" / "reproduction.md", offset=0)
    title, _, rest = text.partition("\n")
    return f"{title}\n\n{conclusions(*PAPER_PAGES)}\nThe tables are on [their own page](paper_tables.md).\n{rest}"


def paper_tables_page() -> str:
    """Return the page of the paper's tables and figures, ours next to the printed values."""
    parts = ["# The paper's tables and figures\n", conclusions(*PAPER_PAGES)]
    for name in PAPER_PAGES:
        parts.append(repeat(OUTPUTS / f"{name}.md"))
    parts.append("## Figures\n")
    for number in (2, 3, 4, 5):
        parts.append(f"![Figure {number}, ours](../../outputs/paper/fig{number}.png)\n")
    return "\n".join(parts)


def weights_page() -> str:
    """Return the page on whether weights lower a risk."""
    parts = ["# Do the weights help?\n", conclusions("weights", "verify/experiment", "paper/health")]
    parts.append("The page [What the weights are](verify.md) explains which quantity the weights estimate.\n")
    parts += [
        repeat(OUTPUTS / "weights.md", title="Proximal, uniform and Fisher-Rao weights on seven datasets"),
        repeat(OUTPUTS / "verify" / "experiment.md", title="A designed experiment"),
        repeat(OUTPUTS / "paper" / "health.md"),
    ]
    return "\n".join(parts)


def verify_page() -> str:
    """Return the page about flows with known solutions."""
    return repeat(OUTPUTS / "verify" / "verify.md", offset=0)


def estimators_page() -> str:
    """Return the page that compares the estimators with those of scikit-learn."""
    return repeat(OUTPUTS / "estimators.md", offset=0)


def tuned_page() -> str:
    """Return the page about recipe=tuned and the losses."""
    parts = ["# Recommended settings and losses\n", conclusions("tuned", "losses")]
    parts += [repeat(OUTPUTS / f"{name}.md") for name in ("tuned", "losses")]
    return "\n".join(parts)


def comparison_page() -> str:
    """Return the page about other methods on the same splits."""
    parts = ["# Comparison with other methods\n", conclusion(OUTPUTS / "compare/matched-light/compare.md") + "\n"]
    parts.append(COMPARISON_NOTES)
    parts.append(repeat(OUTPUTS / "compare" / "matched-light" / "compare.md", title="Matched protocol, light presets"))
    return "\n".join(parts)


def published_samplers_page() -> str:
    """Return the page about the samplers with their published settings."""
    paper = OUTPUTS / "compare" / "paper-paper" / "compare.md"
    parts = ["# The samplers with their published settings\n", conclusion(paper) + "\n", published_samplers_text()]
    parts.append(repeat(paper, title="Paper protocol, paper presets"))
    return "\n".join(parts)


COMPARISON_NOTES = """\
`make compare` computes these tables, with the same five random splits for every method. There are two blocks, because
the methods solve two problems. The networks (block A) have two layers and 500 tanh neurons. The samplers (block B) draw
from the posterior of a *linear* Bayesian logistic regression without a bias. Both blocks end with reference methods.
Each cell (method, dataset, split) runs in a separate process, and its result is stored in
`outputs/compare/cells.jsonl` with the settings that affect it. If you repeat the command, it computes only the cells
that are missing, have failed or have other settings. `--protocol paper` repeats the paper's own comparison; see
[the published settings](published_samplers.md).
"""


def sampler_cells(method: str, dataset: str) -> list[dict[str, Any]]:
    """Return the cells of a sampler with its published settings on random splits, ordered by split."""
    records = (record.identity | record.result for record in ResultCache(OUTPUTS / "compare" / CELLS))
    chosen = (
        cell
        for cell in records
        if (cell["method"], cell["dataset"], cell["preset"]) == (method, dataset, "paper")
        and cell["split"] != "authors"
    )
    return sorted(chosen, key=lambda cell: str(cell["split"]))


def published_samplers_text() -> str:
    """Return the paragraph on how far the published numbers of steps lead, with figures from the stored cells."""

    def functionals(method: str, dataset: str) -> list[float]:
        return [cell["notes"]["ledger"][-1]["functional"] for cell in sampler_cells(method, dataset)]

    jko, langevin = functionals("jko_icnn", "diabetes"), functionals("langevin", "diabetes")
    gaps = [
        reached - bound
        for reached, bound in zip(functionals("jko_icnn", "banana"), functionals("langevin", "banana"), strict=True)
    ]
    twonorm = {method: functionals(method, "twonorm")[0] for method in ("jko_icnn", "swgf", "langevin")}
    return f"""\
JKO-ICNN runs here as in its authors' code: the particles start from the prior, each step starts from a network that is
pretrained to be the identity, and rows with a likelihood below 1e-5 are ignored. From this start, the published number
of steps does not reach the posterior. The functional that JKO-ICNN minimises (defined in the notes below) is stored in
`notes.ledger` of the cells. Its value for unadjusted Langevin, computed with the entropy of a Gaussian, is a lower
bound. JKO-ICNN ends at {min(jko):.0f} to {max(jko):.0f} on the five splits
of diabetes, where the bound is {min(langevin):.0f} to {max(langevin):.0f}, and at {twonorm["jko_icnn"]:.0f} on twonorm
(bound: {twonorm["langevin"]:.0f}). The final clouds are too wide, but on diabetes this does not lower their
log-likelihood. On banana, the functional ends {min(gaps):.1f} to {max(gaps):.1f} above the bound. The preset `light`,
which starts from N(0, I), reaches the posterior on these three datasets. SWGF reaches it on banana and diabetes, but
not on twonorm ({twonorm["swgf"]:.0f}).

The published accuracies belong to one split per dataset. For diabetes, the authors' code defines this split, and
`--splits 5 authors` adds it to the random splits. The seconds overstate the cost, because the cells shared the machine
with other work.
"""


def speed_page() -> str:
    """Return the page about speed, from outputs/bench/whole.json."""
    results = json.loads((OUTPUTS / "bench" / "whole.json").read_text(encoding="utf-8"))
    whole = results["whole"]
    ratios = [record["literal_over_ours"] for record in whole]
    slowest, fastest = (choose(whole, key=lambda record: record["seconds"]) for choose in (max, min))
    machine = results["machine"]
    rows, notes = split_table(whole_table(results))
    short = (
        f"An experiment of the paper takes {duration(fastest['seconds'])} ({fastest['dataset']}) to "
        f"{duration(slowest['seconds'])} ({slowest['dataset']}) on {machine['cores']} cores of a shared virtual "
        f"machine (proxlearn {machine['proxlearn']}, torch {machine['torch']}). The compiled engine is "
        f"{min(ratios):.0f} to {max(ratios):.0f} times as fast as a literal implementation of the paper's algorithms."
    )
    return f"# Speed\n\n{short}\n\n## Whole experiments\n\n{rows}\n\n{notes}\n\n{SPEED_NOTES}"


def split_table(text: str) -> tuple[str, str]:
    """Return the table of a text and what follows it."""
    lines = text.splitlines()
    rows = [line for line in lines if line.startswith("|")]
    rest = lines[lines.index(rows[-1]) + 1 :]
    notes = re.sub(r"^(ours|literal|floor):", r"\n**\1**:", "\n".join(rest), flags=re.MULTILINE)
    return "\n".join(rows), notes.strip()


SPEED_NOTES = """\
## Measure it

| command | what it measures |
| --- | --- |
| `proxlearn bench` | `--whole` and `--special`; `--quick` takes about two minutes |
| `proxlearn bench --whole --dataset wdbc sine` | the paper's experiments as a whole, here on two datasets |
| `proxlearn bench --special` | special cases: spread clouds, other losses and neurons, the start of a command |
| `proxlearn bench --growth` | one step from the initial cloud for N = 1000 to 20000 (with `--large`, up to 100000) |
| `proxlearn bench --company` | commands while other processes use the cores |

Results are printed as tables and stored in bench.json with plots next to it (`-o FILE` selects another file). The
command warns if the machine is busy. Compare only timings that were interleaved.

## The engine

`compile=auto` uses the compiled engine on the CPU and the plain torch engine on other devices; `on` requires the
compiled engine, and `off` selects plain torch. For neurons without compiled passes, the compiled engine computes the
drift in plain torch. The first run compiles some functions and stores them in
your cache folder. No C compiler is needed. A run keeps the engine that it started with: `engine` in `status.json` is
`fused` for the compiled engine and `eager` for plain torch.

Results of the compiled engine do not depend on the number of threads: each pass runs over blocks of particles that
depend only on N, the results of the blocks are added in a fixed order, and the noise comes from a counter-based
generator. Weights, potentials and the sums over the kernel are in float64, in float32 runs as well.

## Memory

The compiled engine stores the kernel of up to 8192 particles as a matrix, which takes at most 512 MB in float64. For
more particles, it stores the tiles that fit into a quarter of the free memory and recomputes the others in every round,
with the same result. `device=cuda` and `compile=off` use the plain torch engine, which computes the log kernel of more
than 4096 particles in tiles. The environment variable `PROXLEARN_MEMORY`, for example `2GiB`, limits the memory that
counts as free; the limit of a container is respected without it.
"""


def contributing_page() -> str:
    return repeat(ROOT / "CONTRIBUTING.md", offset=0)


def changelog_page() -> str:
    return repeat(ROOT / "CHANGELOG.md", offset=0)


def bibliography_page() -> str:
    return "# Bibliography\n\n```{bibliography}\n:all:\n```\n"


WRITTEN = {
    "results/reproduction": reproduction_page,
    "results/paper_tables": paper_tables_page,
    "results/weights": weights_page,
    "results/comparison": comparison_page,
    "results/published_samplers": published_samplers_page,
    "results/speed": speed_page,
    "results/verify": verify_page,
    "results/estimators": estimators_page,
    "results/tuned": tuned_page,
    "project/contributing": contributing_page,
    "project/changelog": changelog_page,
    "project/bibliography": bibliography_page,
}
"""Functions that return the text of each page, by name."""


def readme_table() -> str:
    """Return the table of results in README.md, whose sentences are those of the pages in outputs/."""

    def short(name: str) -> str:
        return re.split(r"[.;:] ", conclusion(OUTPUTS / f"{name}.md"))[0].rstrip(".")

    def quoted(name: str, pattern: str) -> str:
        match = re.search(pattern, conclusion(OUTPUTS / f"{name}.md"))
        assert match is not None, (name, pattern)
        return match[0].rstrip(".")

    speed = re.search(r"The compiled engine.*", " ".join(speed_page().split("\n\n")[1].split()))
    assert speed is not None
    fits = re.search(r"\d+ of \d+ fits", (OUTPUTS / "verify" / "experiment.md").read_text(encoding="utf-8"))
    unfinished = f" (so far, {fits[0]})" if fits else ""
    agreements = {label: lower_first(short(f"paper/{name}")) for label, name in PAPER_RESULTS.items()}
    accuracies, others = (
        "; ".join(f"{label}: {text}" for label, text in agreements.items() if ("accuracies" in text) == wanted)
        for wanted in (True, False)
    )
    help_counts = lower_first(quoted("verify/experiment", r"Proximal weights help.*?equal time"))
    answers = {
        "The paper's accuracies": (accuracies, "docs/reproduction.md"),
        "The paper's risks and curves": (others, "outputs/paper/curves.md"),
        "Recommended settings": (conclusion(OUTPUTS / "tuned.md"), "outputs/tuned.md"),
        "Compared with scikit-learn": (conclusion(OUTPUTS / "estimators.md"), "outputs/estimators.md"),
        "What the weights are": (short("verify/verify"), "outputs/verify/verify.md"),
        "Do weights help?": (
            f"{short('weights')}. In a designed experiment{unfinished}, whose cells are combinations of problem, N, "
            f"epsilon and kappa, {help_counts}",
            "outputs/weights.md",
        ),
        "Speed": (speed[0], "outputs/bench/whole.json"),
    }
    rows = [
        (question, f"{answer.rstrip('.')}.", f"[{Path(link).name}]({link})")
        for question, (answer, link) in answers.items()
    ]
    return table(("question", "answer", "source"), rows)


def lower_first(text: str) -> str:
    """Return a sentence that continues another one."""
    return text[0].lower() + text[1:]


PAPER_RESULTS = {f"Table {n}": f"table{n}" for n in range(1, 6)} | {"SHD": "shd", "Figures 2 and 3": "curves"}
PAGES = {
    ROOT / "CONTRIBUTING.md": "project/contributing.md",
    ROOT / "CHANGELOG.md": "project/changelog.md",
    ROOT / "docs" / "reproduction.md": "results/reproduction.md",
    ROOT / "docs" / "search_comparison.md": "search_comparison.md",
    ROOT / "docs" / "ranks.md": "ranks.md",
}
"""Files of the repository that have a page."""

if __name__ == "__main__":
    # After new results: write the table of README.md again.
    readme = ROOT / "README.md"
    text = re.sub(r"(?<=\n## Results\n\n)(\|.*\n)+", lambda _: readme_table(), readme.read_text(encoding="utf-8"))
    write_changed(readme, text)
