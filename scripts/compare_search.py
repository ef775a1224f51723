"""Compare TPE with random search on two datasets, with several seeds and the same number of short trials.

    python scripts/compare_search.py docs/search_comparison.csv

Every trial is a run of `proxlearn search`, in this process. The table has one row per dataset, sampler and seed: the
best validation score, and the test score of the trial with this validation score. The search does not use test scores.
Searches that the table already contains are not repeated. The page is written next to the table.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

import pandas as pd

from proxlearn.sweeps.search import SearchPlan, create_folder, load_study, run_trial
from proxlearn.sweeps.search_space import parse_space
from proxlearn.terminal.streams import notice
from proxlearn.views.sweep.search_views import trials_table
from proxlearn.views.tables import markdown

DATASETS = {"wdbc": "log_loss", "sine": "rmse"}
RANGES = ("beta=log(1e2,1e6)", "h=log(1e-3,10)", "epsilon=log(1e-3,10)", "init_scale=log(0.1,4)")
SHORT = ("recipe=tuned", "N=50", "steps=80", "threads=1", "validation_fraction=0.25", "films=false")
SAMPLERS = ("tpe", "random")
TRIALS, SEEDS = 20, range(5)


def search(dataset: str, sampler: str, seed: int, folder: Path) -> dict[str, object]:
    """Run one search, and return a row of the table with its scores."""
    fixed, space = parse_space([f"dataset={dataset}", *SHORT, *RANGES])
    metric = f"{DATASETS[dataset]}_weighted"
    # Without pruning, both samplers get the same number of complete trials.
    plan = SearchPlan(tuple(fixed), tuple(space.values()), f"validation_{metric}", sampler, seed, prunes=False)  # type: ignore[arg-type]
    create_folder(folder, plan, "scripts/compare_search.py")
    for _ in range(TRIALS):
        run_trial(folder, TRIALS, "scripts/compare_search.py")
    table = trials_table(plan, load_study(folder, plan))
    best = int(table["trial"].iloc[0])
    test = pd.read_csv(folder / f"trial-{best:04d}" / "metrics.csv")[f"test_{metric}"].iloc[-1]
    score = float(table[plan.metric].iloc[0])
    complete = int((table["state"] == "complete").sum())
    return {"dataset": dataset, "metric": DATASETS[dataset], "sampler": sampler, "seed": seed, "complete": complete,
            "validation": round(score, 5), "test": round(float(test), 5)}  # fmt: skip


def page(table: pd.DataFrame) -> str:
    """Return the page with the mean scores, and with the number of seeds with which each sampler is better."""
    rows, wins = [], {}
    for (dataset, metric), part in table.groupby(["dataset", "metric"], sort=False):
        wide = part.pivot(index="seed", columns="sampler", values="validation")
        for sampler in SAMPLERS:
            of_sampler = part[part["sampler"] == sampler]
            other = next(name for name in SAMPLERS if name != sampler)
            row: dict[str, object] = {"dataset": dataset, "score": metric, "sampler": sampler}
            for name in ("validation", "test"):
                row[f"best {name}" if name == "validation" else "test score"] = (
                    f"{of_sampler[name].mean():.4f} ± {of_sampler[name].std():.4f}"
                )
            row["better in"] = f"{int((wide[sampler] < wide[other]).sum())} of {len(wide)} seeds"
            rows.append(row)
        wins[dataset] = (int((wide["tpe"] < wide["random"]).sum()), len(wide))
    counts = " and ".join(f"for {won} of {seeds} seeds on {dataset}" for dataset, (won, seeds) in wins.items())
    is_clear = any(won in (0, seeds) for won, seeds in wins.values())
    ranges = ", ".join(f"`{text}`" for text in RANGES)
    return (
        "# TPE and random search\n\n"
        f"After {TRIALS} trials, `tpe` has the lower best validation score {counts}"
        f"{'' if is_clear else ', so neither sampler is clearly better'}. "
        "This page compares the two samplers of `proxlearn search`, `tpe` and `random`, on two datasets. "
        "[Search hyperparameters](howto/search.md) describes the command.\n\n"
        f"{markdown(pd.DataFrame(rows))}\n"
        f"- Each search ran {TRIALS} trials with the settings `{' '.join(SHORT)}`. The ranges were {ranges}.\n"
        f"- The scores are mean ± standard deviation over {table['seed'].nunique()} seeds of the sampler; lower is "
        "better. The test score is that of the trial with the best validation score.\n"
        "- Better in: the number of seeds with which this sampler has the lower best validation score.\n"
        "- `scripts/compare_search.py` runs the searches and writes this page and "
        "[a table of all searches](search_comparison.csv).\n"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", type=Path, help="CSV file of the results, which is created if it does not exist")
    parser.add_argument("--most", type=int, default=100, help="maximum number of searches in this call")
    options = parser.parse_args()
    rows: list[Any] = pd.read_csv(options.table).to_dict("records") if options.table.is_file() else []
    done = {(row["dataset"], row["sampler"], row["seed"]) for row in rows}
    cases = [(d, s, k) for d in DATASETS for k in SEEDS for s in SAMPLERS if (d, s, k) not in done]
    for dataset, sampler, seed in cases[: options.most]:
        with tempfile.TemporaryDirectory() as folder:
            rows.append(search(dataset, sampler, seed, Path(folder) / "search"))
        notice(f"{dataset}, {sampler}, seed {seed}: {rows[-1]['validation']}")
        pd.DataFrame(rows).to_csv(options.table, index=False)
    if len(cases) <= options.most:
        options.table.with_suffix(".md").write_text(page(pd.DataFrame(rows)), encoding="utf-8")


if __name__ == "__main__":
    main()
