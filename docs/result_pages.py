"""Result pages of the site, written at build time from the files in outputs/, and pages that repeat top-level files."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

from api_pages import OUTPUTS, PAPER_PAGES, ROOT, WEIGHTS_TITLES, repeat, section_address, title_of
from reference_pages import table, write_changed

from proxlearn.compare.spec import CELLS
from proxlearn.core.fused.fused_step import MOST_DENSE
from proxlearn.jobs.result_cache import ResultCache
from proxlearn.run.device import OUTPUT_COPIES
from proxlearn.views.bench_views import duration, whole_table


def write(folder: Path) -> None:
    """Write every result page and the pages of the project's top-level files into ``folder``, and copy the pictures."""
    for name, page in WRITTEN.items():
        write_changed(folder / f"{name}.md", page())
    for source in ("readme/film.gif", "readme/report.png", "readme/risk.png"):
        copy_changed(OUTPUTS / source, folder / "_static" / Path(source).name)


def copy_changed(source: Path, target: Path) -> None:
    """Copy a file unless the target exists and has the same size."""
    if not target.exists() or target.stat().st_size != source.stat().st_size:
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, target)


def conclusion(path: Path) -> str:
    """Return the first paragraph of a page in outputs/, and the second one if it states that results are missing."""
    first, second = path.read_text(encoding="utf-8").split("\n\n")[1:3]
    return " ".join((f"{first} {second}" if second.startswith("**Unfinished**") else first).split())


def conclusions(*names: str) -> str:
    """Return a list of the conclusions of pages in outputs/, each after a link to the section that shows the page."""
    paths = {name: OUTPUTS / f"{name}.md" for name in names}
    return "".join(
        f"- [{WEIGHTS_TITLES.get(name) or title_of(path)}](../{section_address(name)}): {conclusion(path)}\n"
        for name, path in paths.items()
    )


def reproduction_page() -> str:
    """Return the page about the paper's experiments: conclusions, rules, differences."""
    text = repeat(ROOT / "docs" / "reproduction.md", offset=0)
    title, first, rest = text.split("\n\n", 2)
    short = f"The conclusions are listed below, each after a link to the results:\n\n{conclusions(*PAPER_PAGES)}"
    return f"{title}\n\n{first} {short}\n{rest}"


def paper_tables_page() -> str:
    """Return the page that shows our tables and figures, with the values printed in the paper."""
    parts = ["# The paper's tables and figures\n", PAPER_TABLES_NOTES, conclusions(*PAPER_PAGES)]
    for name in PAPER_PAGES:
        parts.append(repeat(OUTPUTS / f"{name}.md"))
    parts.append("## Figures\n")
    for number in (2, 3, 4, 5):
        parts.append(f"![Figure {number} of the paper, from our runs](../../outputs/paper/fig{number}.png)\n")
    return "\n".join(parts)


def weights_page() -> str:
    """Return the page on whether weights lower a risk."""
    names = ("weights", "verify/experiment", "paper/health")
    parts = ["# Do the weights help?\n", WEIGHTS_NOTES, conclusions(*names)]
    parts += [repeat(OUTPUTS / f"{name}.md", title=WEIGHTS_TITLES.get(name)) for name in names]
    return "\n".join(parts)


def verify_page() -> str:
    """Return the page about flows with known solutions."""
    return repeat(OUTPUTS / "verify" / "verify.md", offset=0)


def estimators_page() -> str:
    """Return the page that compares the estimators with those of scikit-learn."""
    return repeat(OUTPUTS / "estimators.md", offset=0)


def tuned_page() -> str:
    """Return the page about recipe=tuned and the losses."""
    parts = ["# Recommended settings and losses\n", TUNED_NOTES, conclusions("tuned", "losses")]
    parts += [repeat(OUTPUTS / f"{name}.md") for name in ("tuned", "losses")]
    return "\n".join(parts)


def comparison_page() -> str:
    """Return the page that compares proxlearn with other methods on the same splits."""
    matched = OUTPUTS / "compare" / "matched-light" / "compare.md"
    parts = ["# Comparison with other methods\n", f"{conclusion(matched)}\n", COMPARISON_NOTES]
    return "\n".join([*parts, repeat(matched, title="Matched protocol, light presets")])


def published_samplers_page() -> str:
    """Return the page about the samplers with their published settings."""
    paper = OUTPUTS / "compare" / "paper-paper" / "compare.md"
    parts = ["# The samplers with their published settings\n", f"{conclusion(paper)}\n", published_samplers_text()]
    return "\n".join([*parts, repeat(paper, title="Paper protocol, paper presets")])


PAPER_TABLES_NOTES = """\
This page shows our values for every table of the paper next to the printed ones, and our versions of its figures.
[The paper reproduced](reproduction.md) explains the rules and the differences. The files that the notes mention are in
`outputs/paper/` of the repository. The conclusions are:
"""
WEIGHTS_NOTES = """\
This page compares the results of proximal weights with those of other weight updates. The page
[What the weights are](verify.md) shows which quantity the weights estimate. The files that the notes mention are in
`outputs/` of the repository. The conclusions are:
"""
TUNED_NOTES = """\
This page shows the results of the settings that `recipe=tuned` selects, and compares the quadratic loss with the losses
that `recipe=tuned` uses for classes. The files that the notes mention are in `outputs/` of the repository. The
conclusions are:
"""
COMPARISON_NOTES = """\
This page compares `proxlearn` with other methods on the same five random splits of each dataset. The methods form
two blocks, because they solve two different problems. The networks (block A) have two layers and 500 tanh neurons. The
samplers (block B) draw from the posterior of a *linear* Bayesian logistic regression without a bias. The tables of both
blocks end with the same reference methods.

The protocol is *matched*: all methods use the same splits and standardised features. The preset is *light*: the
samplers use settings with which a fit takes seconds. [Another page](published_samplers.md) shows the samplers with
their published settings.

`make compare` computes these tables. Each *cell* (method, dataset, split) is computed in a separate process, and its
result is stored in `outputs/compare/cells.jsonl` together with the settings that affect it. If you repeat the command,
it computes only the cells that are missing, have failed or have other settings.
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
    """Return the text on whether the published settings reach the posterior, with values from the stored cells."""

    def functionals(method: str, dataset: str) -> list[float]:
        return [cell["notes"]["ledger"][-1]["functional"] for cell in sampler_cells(method, dataset)]

    jko, langevin = functionals("jko_icnn", "diabetes"), functionals("langevin", "diabetes")
    gaps = [
        reached - bound
        for reached, bound in zip(functionals("jko_icnn", "banana"), functionals("langevin", "banana"), strict=True)
    ]
    twonorm = {method: functionals(method, "twonorm")[0] for method in ("jko_icnn", "swgf", "langevin")}
    return f"""\
This page repeats the paper's own comparison: the samplers have the settings that their authors published, and their
data are scaled as in their papers. [Comparison with other methods](comparison.md) explains the two blocks of tables.

JKO-ICNN is computed here as in the code of its authors: the particles start from the prior, the network of each step is
first trained to be the identity, and rows with a likelihood below 1e-5 are ignored. With this start, the published
number of steps is too small to reach the posterior. This can be seen from the functional that JKO-ICNN minimises, which
is defined in the first notes below. Its value for unadjusted Langevin, computed with the entropy of a normal
distribution, is a lower bound. On the five splits of diabetes, JKO-ICNN ends at {min(jko):.0f} to {max(jko):.0f},
where the bound is {min(langevin):.0f} to {max(langevin):.0f}. On twonorm, it ends at {twonorm["jko_icnn"]:.0f} (bound:
{twonorm["langevin"]:.0f}). The particles are then too far apart, but on diabetes this does not lower the
log-likelihood. On banana, the functional ends {min(gaps):.1f} to {max(gaps):.1f} above the bound. With the preset
`light`, the particles start from N(0, I), and JKO-ICNN reaches the posterior on these three datasets. With the
published settings, SWGF reaches it on banana and diabetes, but not on twonorm ({twonorm["swgf"]:.0f}). The values of
the functional are stored in `notes.ledger` of the cells in `outputs/compare/cells.jsonl`.

Each published accuracy belongs to a single split of the dataset. For diabetes, the code of the authors defines this
split, and `--splits 5 authors` adds it to the random splits. The seconds overstate the cost, because the cells shared
the machine with other processes.
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
        f"The experiments of the paper take {duration(fastest['seconds'])} ({fastest['dataset']}) to "
        f"{duration(slowest['seconds'])} ({slowest['dataset']}) on {machine['cores']} cores of a shared virtual "
        f"machine (proxlearn {machine['proxlearn']}, torch {machine['torch']}). The compiled engine is "
        f"{min(ratios):.0f} to {max(ratios):.0f} times as fast as a literal implementation of the paper's algorithms."
    )
    sizes = f"{SPEED_NOTES}\n{memory_table()}"
    return f"# Speed\n\n{short}\n\n## Whole experiments\n\n{rows}\n\n{notes}\n\n{sizes}"


def memory_table() -> str:
    """Return a table of the memory that a float32 run needs, by the estimates with which a run is checked."""
    lines = []
    for N in (500, 2000, MOST_DENSE, 20_000, 100_000):
        outputs = (f"{OUTPUT_COPIES * 4 * N * rows / 2**20:.0f}" for rows in (1000, 10_000))
        kernel = f"{4 * N**2 / 2**20:.0f}" if N <= MOST_DENSE else "tiles, up to a quarter of the free memory"
        lines.append((f"{N}", *outputs, kernel))
    head = ("N", "outputs, 1000 training rows (MiB)", "outputs, 10000 rows (MiB)", "stored kernel (MiB)")
    return table(head, lines)


def split_table(text: str) -> tuple[str, str]:
    """Return the table that a text contains, and the notes after this table."""
    lines = text.splitlines()
    rows = [line for line in lines if line.startswith("|")]
    rest = lines[lines.index(rows[-1]) + 1 :]
    notes = re.sub(r"^(ours|literal|floor):", r"\n**\1**:", "\n".join(rest), flags=re.MULTILINE)
    return "\n".join(rows), notes.strip()


SPEED_NOTES = """\
## Measure it

`proxlearn bench` measures the speed on your machine; `proxlearn bench --whole --dataset wdbc sine` computes two rows of
the table above. [Its help text](../reference/command_line.md#proxlearn-bench) lists the other measurements. The results
are printed as tables and stored in `bench.json`, and plots are written next to this file (`-o FILE` selects another
file). The command warns if the machine is busy. Compare only timings that were interleaved, that is, measured in turn
in one process.

## The engine

`compile=auto` uses the compiled engine on the CPU and the plain torch engine on other devices; `on` requires the
compiled engine, and `off` selects the plain torch engine. For neurons without compiled passes, the compiled engine
computes the drift in plain torch. The first run compiles some functions and stores them in your cache folder. No C
compiler is needed. A run keeps the engine with which it started. In [`status.json`](../reference/run_folder.md), the
value of `engine` is `fused` for the compiled engine and `eager` for the plain torch engine.

The results of the compiled engine do not depend on the number of threads: each pass is divided into blocks of particles
that depend only on N, the results of the blocks are added in a fixed order, and the noise comes from a counter-based
random number generator. The weights, log z, log q and the sums over the kernel are in float64, even in float32 runs.
[The fast kernels](../theory/kernels.md) describes the shortcuts of the engine.

## Memory

The compiled engine stores the kernel of up to 8192 particles as a matrix, which takes at most 512 MB in float64. For
more particles, it stores the tiles that fit into a quarter of the free memory and recomputes the others in every round,
with the same result. `device=cuda` and `compile=off` use the plain torch engine, which computes the kernel of more than
4096 particles in tiles, in the log domain. The environment variable `PROXLEARN_MEMORY`, for example `2GiB`, limits the
memory that counts as free. The memory limit of a container is respected automatically. See
[Large clouds](../howto/large_clouds.md).

The following table helps to choose N for a machine. Its values are upper estimates for float32, and a command refuses a
run whose outputs would not fit in memory. The kernel is stored only if many particles are close to each other. With
several classes, multiply the memory of the outputs by the number of classes. With `batch_size`, the batch replaces the
training rows.
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
    """Return the table of results for README.md; its sentences come from the pages in outputs/."""

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
    """Return the text with a lower-case first letter, so that it can continue a sentence."""
    return text[0].lower() + text[1:]


PAPER_RESULTS = {f"Table {n}": f"table{n}" for n in range(1, 6)} | {"SHD": "shd", "Figures 2 and 3": "curves"}
if __name__ == "__main__":
    # After new results: write the table of README.md again.
    readme = ROOT / "README.md"
    text = re.sub(r"(?<=\n## Results\n\n)(\|.*\n)+", lambda _: readme_table(), readme.read_text(encoding="utf-8"))
    write_changed(readme, text)
