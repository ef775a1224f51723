"""Do the proximal weights help? Paired splits of every dataset, three weight updates, one table: outputs/weights.md.

For each split the settings are selected once, from its training part, with weights=proximal, and shared: the three fits
have the same cloud_0, the same noise and the same numbers, and differ in the weight update alone. `--selection own`
selects for each update by itself instead. Every fit is stored below outputs/weights/, so an interrupted call goes on.
"""

from __future__ import annotations

import argparse
import json
import re
import time
from dataclasses import replace
from pathlib import Path
from statistics import mean
from typing import Any

import torch

from proxlearn.compare.statistics import paired
from proxlearn.config.compose import compose, parse
from proxlearn.core.energy import effective_sample_size
from proxlearn.core.options import Weights
from proxlearn.core.scores import scores
from proxlearn.files.atomic import write_atomically, write_json
from proxlearn.run.experiment import build_experiment
from proxlearn.run.ownership import begins_with
from proxlearn.run.run_config import validate_config
from proxlearn.training.settings import Settings
from proxlearn.training.successive_halving import select
from proxlearn.training.trainer import fit
from reproduce.measured import majority_accuracy

REPORT_START = re.compile(rb"# Do the proximal weights help\?\n")
UPDATES: tuple[Weights, ...] = ("proximal", "uniform", "fisher_rao")
HALF = ("dataset.split=shuffled", "dataset.train_fraction=0.5")
DATASETS = {
    "wdbc": HALF,
    "diabetes": HALF,
    "banana": HALF,
    "twonorm": HALF,
    "digits": HALF,
    "shd": ("dataset.split=shuffled", "dataset.train_fraction=0.6277"),
    "sine": (),
}
"""Each with what makes its splits; sine has one split, so there the seed of cloud_0 and noise changes."""


def measure(dataset: str, split: int, selection: str, threads: int) -> dict[str, Any]:
    """Test figures of the weighted estimate by each update, and the accuracy of the majority class."""
    seed = split if dataset == "sine" else 0
    words = [f"dataset={dataset}", "recipe=tuned", f"split_seed={split}", *DATASETS[dataset]]
    experiment = build_experiment(validate_config(compose(parse(words))))
    problem, test = experiment.source, experiment.prepared.test
    found: dict[str, Any] = {"majority": majority_accuracy(experiment.prepared)}
    settings: Settings | None = None
    for weights in UPDATES:
        start = time.monotonic()
        if settings is None or selection == "own":
            base = replace(experiment.settings, weights=weights)
            settings = select(problem, base, seed=seed, threads=threads).settings
        settings = replace(settings, weights=weights)
        cloud = fit(problem, settings, seed=seed, threads=threads).cloud.to("cpu", torch.float64)
        figures = scores(problem.neuron, cloud, test)
        found[weights] = {
            "risk": figures["risk_weighted"],
            "accuracy": figures.get("accuracy_weighted"),
            "ess": float(effective_sample_size(cloud.log_rho)),
            "seconds": time.monotonic() - start,
            **{name: getattr(settings, name) for name in ("h", "beta", "epsilon", "init_scale", "steps")},
        }
    return found


def test_share(dataset: str) -> float:
    """Test rows over training rows of its splits; 0 where there is one split and the seeds are independent."""
    fractions = [float(word.partition("=")[2]) for word in DATASETS[dataset] if "train_fraction" in word]
    return (1 - fractions[0]) / fractions[0] if fractions else 0.0


def table(runs: dict[str, list[dict[str, Any]]]) -> list[str]:
    head = ["dataset", "splits", "risk, proximal", "− uniform", "− fisher_rao", "majority class", "accuracy, proximal"]
    head += ["− uniform", "− fisher_rao", "ESS / N: proximal, fisher_rao"]
    lines = [f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
    for dataset, found in runs.items():
        cells = [dataset, str(len(found))]
        for figure in ("risk", "accuracy"):
            values = {weights: dict(enumerate(each[weights][figure] for each in found)) for weights in UPDATES}
            if values["proximal"][0] is None:
                cells += [""] * 4
                continue
            if figure == "accuracy":
                cells.append(f"{mean(each['majority'] for each in found):.4f}")
            cells.append(f"{mean(values['proximal'].values()):.4f}")
            for other in UPDATES[1:]:
                cells.append(paired(values["proximal"], values[other], test_share(dataset)).text(4))
        ess = [mean(each[weights]["ess"] for each in found) / 500 for weights in ("proximal", "fisher_rao")]
        lines.append(f"| {' | '.join(cells)} | {ess[0]:.2f}, {ess[1]:.2f} |")
    return lines


def report(folder: Path, output: Path) -> None:
    text = [
        "# Do the proximal weights help?",
        "",
        "`make weights` (scripts/weights.py): recipe=tuned, N = 500, paired splits (the same rows, cloud_0, noise and",
        "numbers). Test figures of the weighted estimate; differences are proximal minus the other, with half-widths",
        "of 95 % intervals over the splits: ± Student's, too narrow because random splits of one dataset overlap, and",
        "in brackets Nadeau and Bengio's corrected one (4.6 times as wide for halves); * marks a corrected interval",
        "that does not contain 0. A lower risk and a higher accuracy are better. Majority class: the accuracy of",
        "always answering the training part's more frequent class. sine has one split and 20 seeds, whose results are",
        "independent: there both intervals are the same.",
        "",
    ]
    titles = {
        "shared": "## The same settings for all three, selected with weights=proximal",
        "own": "## Settings selected for each update by itself",
    }
    for selection, title in titles.items():
        runs = {}
        for dataset in DATASETS:
            paths = sorted((folder / selection).glob(f"{dataset}-*.json"))
            if len(paths) > 1:
                runs[dataset] = [json.loads(path.read_text()) for path in paths]
        if runs:
            text += [title, "", *table(runs), ""]
    write_atomically(output, "\n".join(text).encode())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--datasets", nargs="+", choices=DATASETS, default=list(DATASETS))
    parser.add_argument("--splits", nargs="+", type=int, default=list(range(20)))
    parser.add_argument("--selection", choices=("shared", "own"), default="shared")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--output", type=Path, default=Path("outputs/weights.md"))
    asked = parser.parse_args()
    if asked.output.exists() and not begins_with(asked.output, REPORT_START):
        parser.error(f"{asked.output} was not written by this script: choose another --output")
    torch.set_num_threads(asked.threads)
    folder = asked.output.with_suffix("")
    (folder / asked.selection).mkdir(parents=True, exist_ok=True)
    for dataset in asked.datasets:
        for split in asked.splits:
            path = folder / asked.selection / f"{dataset}-{split:02d}.json"
            if not path.exists():
                found = measure(dataset, split, asked.selection, asked.threads)
                write_json(path, found)
                print(dataset, split, {name: round(found[name]["risk"], 4) for name in UPDATES}, flush=True)
            report(folder, asked.output)


if __name__ == "__main__":
    main()
