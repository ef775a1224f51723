"""The numbers in docs/ are those of the committed result files."""

from __future__ import annotations

import csv
import re
import runpy
from pathlib import Path

import pandas as pd
import pytest

from proxlearn.compare.spec import CELLS
from proxlearn.core.hyper import BLIND_KAPPA, energy_share
from proxlearn.jobs.result_cache import ResultCache
from proxlearn.paper import curves_page, published
from proxlearn.paper.archive import Archive, ArchivedRun
from proxlearn.paper.curves_page import curve_distance, find_panel
from proxlearn.paper.health_measures import first_and_last, free_energy_rises, kappa
from proxlearn.run.metric_definitions import CLOUD
from proxlearn.views.style import ESTIMATE_COLOURS
from tests.core.test_entropy import BIAS

ROOT = Path(__file__).parents[1]
OUTPUTS = ROOT / "outputs"


def text_of(name: str) -> str:
    return " ".join((ROOT / name).read_text(encoding="utf-8").split())


def tables_of(path: Path) -> dict[str, dict[str, dict[str, str]]]:
    """Return the tables of a page by title, as rows by first cell and cells by heading."""
    tables: dict[str, dict[str, dict[str, str]]] = {}
    title, head = "", [""]
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.startswith("#"):
            title, head = line.lstrip("# "), [""]
        elif line.startswith("| "):
            cells = [cell.strip() for cell in line[1:-1].split("|")]
            if title not in tables:
                tables[title], head = {}, cells
            else:
                tables[title][cells[0]] = dict(zip(head, cells, strict=True))
    return tables


def csv_rows(name: str) -> list[dict[str, str]]:
    with (OUTPUTS / name).open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_the_tutorial_on_table_2_has_the_paper_s_figures() -> None:
    lines = (ROOT / "docs" / "tutorials" / "table2.md").read_text(encoding="utf-8").splitlines()
    cells = [[cell.strip() for cell in line[1:-1].split("|")] for line in lines if line.startswith("|")]
    table = {tuple(row[:2]): row[2:] for row in cells}
    stored = tables_of(OUTPUTS / "paper" / "table2.md")
    for row, column, place, title, ours in (
        ("`weighted`", "paper, weighted", 1, "Weighted estimate", "weighted (%)"),
        ("`unweighted_saturated`", "paper, unweighted", 0, "Unweighted estimate", "saturated (%)"),
    ):
        assert table[row, column] == [f"{figures[place]} %" for figures in published.TABLE2.values()]
        assert table[row, "our stored runs"] == [f"{stored[title][str(beta)][ours]} %" for beta in published.TABLE2]
    text = " ".join(" ".join(lines).split())
    signs = [stored["Unweighted estimate"][str(beta)]["sign (%)"] for beta in published.TABLE2]
    assert signs == [stored["Weighted estimate"][str(beta)]["weighted (%)"] for beta in published.TABLE2]
    assert f"({signs[0]} %, {signs[1]} % and {signs[2]} %)" in text
    (effect, *_) = tables_of(OUTPUTS / "paper" / "health.md").values()
    assert f"constant from recursion {effect['WDBC, Table 2']['identity from k']} on" in text
    assert f"sample size is {effect['WDBC, Table 2']['ESS (%)']} % of" in text


def test_the_comparison_names_the_networks_that_differ_clearly() -> None:
    rows = [row for row in csv_rows("compare/matched-light/networks.csv") if row["kind"] == "network"]
    assert len(rows) == 16
    clear = {
        row["dataset"]
        for row in rows
        if row["method"] != "proxlearn"
        and abs(float(row["accuracy_difference"])) > float(row["accuracy_difference_corrected"])
    }
    first = (OUTPUTS / "compare" / "matched-light" / "compare.md").read_text(encoding="utf-8").split("\n\n")[1]
    of_networks = first.partition("of the samplers")[0]
    assert {name for name in {row["dataset"] for row in rows} if name in of_networks} == clear


def test_one_time_is_given_for_make_compare_and_its_fits_fit_into_it() -> None:
    (minutes,) = re.findall(r"light presets \((\d+) minutes on 2 cores", text_of("Makefile"))
    cells = [record.identity | record.result for record in ResultCache(OUTPUTS / "compare" / CELLS)]
    light = [
        cell
        for cell in cells
        if cell["split"] != "authors" and (cell["preset"] or "light") == "light" and cell["threads"] == 1
    ]
    busy = sum(cell["figures"]["seconds"] for cell in light) / 60 / 2
    assert busy < float(minutes) < 3 * busy


def test_docs_and_table_5_agree_on_which_N_are_near() -> None:
    verdict = re.search(
        r"It is within 15% of the paper's value at (.*?), and more than 15% away from it at (.*?)\.",
        text_of("outputs/paper/table5.md"),
    )
    assert verdict is not None
    conclusion = "No reading agrees with the paper. The closest one is 1000 points, weights 1/N; 0.5/n"
    assert conclusion in text_of("outputs/paper/table5.md")
    near, far = (re.findall(r"N=(\d+) \(([-+]\d+)%\)", part) for part in verdict.groups())
    words = (
        f"is within 15 % only at N = {near[0][0]} ({near[0][1]} %) and {near[1][0]} ({near[1][1]} %) "
        f"(N = {far[0][0]}: {far[0][1]} %, {far[1][0]}: {far[1][1]} %)"
    )
    assert words in text_of("docs/reproduction.md")
    readings = [row for row in csv_rows("paper/table5.csv") if row["figure"]]
    assert f"all {len(readings)} readings" in text_of("docs/reproduction.md")


def test_docs_say_until_when_the_saturated_count_lags_in_tables_1_and_2() -> None:
    lags = []
    entries = ("table1", "table1-seeds", "table1-float64", "table2", "table2-seeds", "table2-more")
    for run in Archive(OUTPUTS / "paper").runs(*entries):
        lag = 100 * (run.metrics["test_accuracy_unweighted"] - run.metrics["test_accuracy_unweighted_saturated"])
        lags.append(pd.DataFrame({"step": run.metrics["step"], "lag": lag, "run": run.name.partition("/")[2]}))
    assert len(lags) >= 9
    every = pd.concat(lags)
    assert every[every["step"] >= 2.3e5]["lag"].max() < 2
    last = every[every["lag"] >= 2].sort_values("step").iloc[-1]
    beta = re.match(r"beta([\d.]+)-", last["run"])
    assert beta is not None
    sentence = (
        "Between k = 6e4 and 2.3e5, while f grows past log 1000 = 6.9, the lag reaches 5 to 12 points, depending on "
        "the run. From then on, it is less than 2 points (the last "
        f"larger lag is {last['lag']:.2f} at k = {last['step']}, β = {beta[1]})"
    )
    assert sentence in text_of("docs/reproduction.md")


def test_docs_give_the_lag_at_the_largest_beta_of_table_1() -> None:
    (run,) = archived("table1", beta=0.07)
    steps = run.metrics.set_index("step")
    lag = 100 * (steps["test_accuracy_unweighted"] - steps["test_accuracy_unweighted_saturated"])
    # Before 5e4, f is so small that the saturated count is far from the other one in every run.
    lag = lag[lag.index >= 5e4]
    of_paper = published.TABLE1[0.07][1] - published.TABLE1[0.07][0]
    sentence = (
        f"In the run of Table 1 at β = 0.07, the lag reaches {lag.max():.0f} points at k = {lag.idxmax() / 1e5:.1f}e5 "
        "and is zero at k = 1e6. The paper's lag of "
        f"{of_paper:.0f} points"
    )
    assert lag[1_000_000] == 0
    assert sentence in text_of("docs/reproduction.md")


def test_docs_give_the_risks_of_table_3_that_differ() -> None:
    rows = re.findall(r"\| (0\.1|0\.5) +\| ([\d.]+) ± ([\d.]+) +\| ([\d.]+)", text_of("outputs/paper/table3.md"))
    (_, first, spread, theirs), (_, second, other_spread, other_theirs) = rows
    sentence = (
        f"The paper's values, {float(theirs):.1f}e-3 and {float(other_theirs):.1f}e-3, are above ours, {first}e-3 ± "
        f"{spread}e-3 and {second}e-3 ± {other_spread}e-3 (three seeds each)"
    )
    assert sentence in text_of("docs/reproduction.md")
    assert [len(archived(entry, epsilon=0.1)) for entry in ("table3", "table3-seeds")] == [1, 2]


def test_docs_give_the_revisions_and_the_numbers_of_the_runs() -> None:
    sources = (OUTPUTS / "paper" / "sources.txt").read_text(encoding="utf-8")
    of_revision = {number: re.findall(rf"revision {number}\).*", sources) for number in (2, 3)}
    assert all("films=true" in line for line in of_revision[2]), "the runs for the free energy"
    assert all("experiment=fig3 seed=" in line and "steps=60000" in line for line in of_revision[3])
    assert "(revision 2) and those of Figure 3 from other initial clouds (revision 3)" in text_of(
        "docs/reproduction.md"
    )
    short, text = archived("fig3-start"), text_of("docs/reproduction.md")
    assert f"and {len(short)} runs with {short[0].last_step} recursions" in text
    assert f"the recursions after the first {short[0].last_step} in {len(short) - 1} of the {len(short)} runs" in text


def test_the_page_on_searches_is_written_from_its_table() -> None:
    script = runpy.run_path(str(ROOT / "scripts" / "compare_search.py"))
    table = pd.read_csv(ROOT / "docs" / "search_comparison.csv")
    assert script["page"](table) == (ROOT / "docs" / "search_comparison.md").read_text(encoding="utf-8")


def test_the_majority_class_stands_beside_every_accuracy() -> None:
    for name in ("table1", "table2", "table4", "shd"):
        head = next(iter(csv_rows(f"paper/{name}.csv")))
        assert any(column.startswith("majority class") for column in head), name
    for name in ("paper/health.md", "weights.md", "tuned.md", "compare/matched-light/compare.md"):
        assert "majority class" in (OUTPUTS / name).read_text(encoding="utf-8"), name
    (share,) = {row["majority class (%)"] for row in csv_rows("paper/table1.csv")}
    assert f"{float(share):.2f} % for WDBC's test part" in text_of("docs/reproduction.md")


def test_one_run_gets_no_verdict_in_health() -> None:
    text = (OUTPUTS / "paper" / "health.md").read_text(encoding="utf-8")
    assert "(1 run)" not in text
    assert text.count("one run: no verdict") >= 4
    (alone,) = (row for row in csv_rows("paper/table1.csv") if row["verdict on unweighted"].startswith("differs"))
    assert (alone["runs"], alone["verdict on unweighted"]) == ("1", "differs by +14.71 (one run)")


def archived(entry: str, **settings: object) -> list[ArchivedRun]:
    """Runs of an entry of the plan with some settings."""
    runs = Archive(OUTPUTS / "paper").runs(entry)
    return [run for run in runs if all(run[name] == value for name, value in settings.items())]


def test_docs_give_the_distances_from_the_published_curves() -> None:
    text = text_of("docs/reproduction.md")
    largest = {}
    for name in ("fig2a", "fig2b", "fig3"):
        panel = find_panel(name)
        for estimate in ESTIMATE_COLOURS:
            distances = [
                curve_distance(runs, panel, estimate)
                for _, runs in curves_page.panel_lines(Archive(OUTPUTS / "paper"), panel)
            ]
            largest[name, estimate] = max(100 * abs(distance.largest) for distance in distances if distance is not None)
    left = max(largest["fig2a", estimate] for estimate in ESTIMATE_COLOURS)
    right = max(largest["fig2b", estimate] for estimate in ESTIMATE_COLOURS)
    assert f"both curves, on the *training* rows, within {left:.1f} % from k = 2e5 on" in text
    assert f"both curves within {right:.1f} % at k = 2.4e5, three seeds" in text
    # The paper's runs share one initial cloud, so its line is compared with one cloud and not with a mean over clouds.
    weighted, unweighted = (f"{largest['fig3', estimate]:.1f} %" for estimate in ("weighted", "unweighted"))
    assert f"the weighted curve within {weighted} at every k, with one initial cloud" in text
    assert f"the unweighted curve from the same cloud differs by {unweighted} (tolerance: 3 %)" in text
    others = curves_page.other_lines(Archive(OUTPUTS / "paper"), find_panel("fig3"))
    single, mean = others[:-1], others[-1][1]
    distances = [curve_distance(runs, find_panel("fig3"), "unweighted") for _, runs in single]
    within = [100 * abs(distance.largest) for distance in distances if distance is not None]
    assert f"{len(single)} runs from other clouds differ by {min(within):.1f} to {max(within):.1f} %" in text
    of_mean = [curve_distance(mean, find_panel("fig3"), estimate) for estimate in ESTIMATE_COLOURS]
    assert len(mean) == 5
    assert max(abs(distance.largest) for distance in of_mean if distance is not None) < 0.03
    assert f"the two published curves differ by up to {100 * curves_page.between_estimates('fig3'):.1f} %" in text
    assert left < 5
    assert largest["fig3", "weighted"] < 3 < largest["fig3", "unweighted"], "a verdict of docs/reproduction.md changes"


def test_docs_explain_table_3_by_the_bytes_of_the_committed_cloud() -> None:
    (run,) = archived("free-energy-wdbc")
    f, labels = curves_page.test_outputs(run, 250_000)
    ours = curves_page.risk_paper(curves_page.snapped(curves_page.logistic(f)), labels)
    read = curves_page.misread_risk(f, labels)
    assert ours == pytest.approx(run.final("test_risk_paper_unweighted"), rel=1e-4)
    sentence = f"gives {1e3 * read:.1f}e-3 in place of {1e3 * ours:.1f}e-3"
    assert sentence in text_of("docs/reproduction.md")


def test_docs_say_where_the_free_energy_falls_and_where_it_rises() -> None:
    text = text_of("docs/reproduction.md")
    runs = {run["dataset"]["name"]: run for entry in curves_free_energy() for run in archived(entry)}
    assert set(runs) == {"wdbc", "banana", "diabetes", "twonorm", "sine"}
    rises = {name: free_energy_rises(run) for name, run in runs.items()}
    assert {name for name, steps in rises.items() if steps} == {"wdbc"}
    assert "F_β falls on banana, diabetes, twonorm and the sine" in text
    wdbc = runs["wdbc"]
    assert wdbc.free_energy is not None
    lowest = wdbc.free_energy.loc[wdbc.free_energy["free_energy"].idxmin(), "step"]
    assert f"it falls until k = {lowest:.0e}".replace("e+0", "e") in text
    assert first_and_last(wdbc, "free_energy")[1] > first_and_last(wdbc, "free_energy")[0]
    first, last = first_and_last(wdbc, "risk")
    assert f"from {first:.1f} to {last:.1e}".replace("e+0", "e") in text
    assert f"classifies {100 * wdbc.final('test_accuracy_unweighted'):.0f} % of the test rows" in text
    banana = runs["banana"].free_energy
    assert banana is not None
    last_row = banana.iloc[-1]
    figures = (last_row["weights_correlation"], last_row["entropy_from_weights"], last_row["entropy"])
    words = (
        "(correlation {:.2f}). The entropy that is estimated from them is {:.2f}; the estimate from nearest neighbours "
        "is {:.2f}"
    )
    assert words.format(*figures) in text


def curves_free_energy() -> tuple[str, ...]:
    from proxlearn.paper.health_page import FREE_ENERGY

    return FREE_ENERGY


def test_the_bias_of_the_entropy_is_stated_as_it_was_measured() -> None:
    for text in (text_of("outputs/paper/health.md"), CLOUD["entropy"]):
        name = text[:40]
        assert f"{BIAS[32]:.1f}" in text, name
        assert f"{max(abs(bias) for d, bias in BIAS.items() if d <= 10):.2f}" in text, name


def test_kappa_of_the_papers_runs_and_the_threshold_of_the_notice_are_as_documents_say() -> None:
    values = {run["dataset"]["name"]: kappa(run) for entry in ("table4", "table5") for run in archived(entry, seed=0)}
    low, high = (min(values, key=values.__getitem__), max(values, key=values.__getitem__))
    span = f"kappa = {values[low]:.0f} ({low}) to {values[high]:.0f} ({high})"
    text = text_of("docs/reproduction.md")
    assert span in text
    assert f"If kappa is above {BLIND_KAPPA:g}" in text
    assert energy_share(BLIND_KAPPA) == pytest.approx(0.1)


def test_the_page_of_the_samplers_is_the_one_that_the_table_gives() -> None:
    page = ROOT / "docs" / "search_comparison.md"
    script = runpy.run_path(str(ROOT / "scripts" / "compare_search.py"))
    assert page.read_text(encoding="utf-8") == script["page"](pd.read_csv(page.with_suffix(".csv")))


def test_the_page_on_ranks_is_what_its_script_writes_and_the_formula_is_what_was_counted() -> None:
    script = runpy.run_path(str(ROOT / "scripts" / "ranks_page.py"))
    assert script["PAGE"].read_text() == script["page"]()
    for row in script["rows_of"](script["MEASURED"]):
        if row["bytes_per_step"]:
            sweeps = float(row["rounds_per_step"]) + 1
            assert float(row["bytes_per_step"]) == pytest.approx(script["bytes_per_step"](2, sweeps), rel=0.02)
