"""``proxlearn search``: choose hyperparameters by a metric on held-out training rows, with Optuna."""

from __future__ import annotations

import argparse
import shlex
from pathlib import Path
from typing import Any

from proxlearn.errors import InputError
from proxlearn.files.safe_read import absolute_folder, display_path
from proxlearn.terminal.argument_parser import command_parser
from proxlearn.terminal.streams import notice
from proxlearn.validators import integer, parse_number

DESCRIPTION = """\
Search for hyperparameters. Every trial is an ordinary run, scored on a validation part of the training rows
(validation_fraction=0.25, unless another value is given); no test row is used. The same command continues a search
that was stopped or killed, and a larger --trials extends it. Needs the extra `search` (Optuna).

Ranges are given in place of values:
  beta=log(0.01,10)        a number, searched on a logarithmic scale
  h=uniform(0.1,1)         a number
  N=int(50,500)            a whole number
  activation=choice(tanh,relu)   one of several values
"""
EXAMPLES = """\
  proxlearn search dataset=banana steps=500 "beta=log(0.01,10)" "epsilon=log(1e-3,10)" --trials 40
  proxlearn search dataset=csv dataset.path=my.csv dataset.target=label "h=log(0.01,1)" --trials 20 --workers 2
  proxlearn search dataset=wdbc "beta=log(0.01,10)" --metric validation_accuracy_weighted --sampler random
"""


def main(args: list[str]) -> int:
    options = build_parser().parse_intermixed_args(args)
    from proxlearn.jobs.job import Job
    from proxlearn.jobs.launchers import LocalPool
    from proxlearn.jobs.runner import run_jobs
    from proxlearn.sweeps import search

    search.require_optuna()
    trials = integer(at_least=1, below=10**6, example=40)("--trials", parse_number(options.trials))
    workers = integer(at_least=1, below=1025, example=2)("--workers", parse_number(options.workers))
    plan = plan_search(options)
    folder = absolute_folder(options.output or Path("outputs", "searches", plan.name))
    command = shlex.join(["proxlearn", "search", *args])
    search.create_folder(folder, plan, command)
    study = search.load_study(folder, plan)
    finished = len(study.get_trials(deepcopy=False)) - len(search.unfinished(study))
    before = f", {finished} already finished" if finished else ""
    from proxlearn.train_and_draw import echo

    noun = "trial" if trials == 1 else "trials"
    echo(f"proxlearn: a search of {trials} {noun}{before} -> {display_path(folder)}\n")
    arguments = (folder, trials, command)
    jobs = [
        Job(f"trial-{i}", f"trial {i + 1} of {trials}", search.run_trial, arguments) for i in range(finished, trials)
    ]
    pool = LocalPool(workers, None if workers == 1 else 1)
    outcome = run_jobs(jobs, folder / "jobs", pool, preload=search.PRELOAD, caption="search") if jobs else None
    from proxlearn.views.sweep.search_views import render_search, summary

    render_search(folder, plan, search.load_study(folder, plan))
    echo(summary(folder, plan, search.load_study(folder, plan)))
    if outcome is not None and outcome.signal is not None:
        notice("the search was stopped; the same command continues it")
    if outcome is not None and (outcome.exit_code or outcome.signal is not None):
        return outcome.exit_code
    states = [trial.state.name for trial in search.load_study(folder, plan).get_trials(deepcopy=False)]
    return 0 if "COMPLETE" in states else 1


def build_parser() -> argparse.ArgumentParser:
    parser = command_parser("search", DESCRIPTION, EXAMPLES)
    parser.add_argument(
        "overrides", nargs="*", metavar="KEY=VALUE", help="settings as for `proxlearn train`, and ranges to search"
    )
    parser.add_argument("--trials", default="40", metavar="NUMBER", help="total number of trials (default: 40)")
    parser.add_argument("--workers", default="1", metavar="NUMBER", help="number of parallel trials (default: 1)")
    parser.add_argument(
        "--metric",
        metavar="COLUMN",
        help="column of metrics.csv that scores a trial (default: validation_log_loss_weighted, or "
        "validation_rmse_weighted for a real target); accuracy and r2 are maximised, other metrics are minimised",
    )
    parser.add_argument(
        "--sampler", choices=("tpe", "random"), default="tpe", help="method that chooses the values (default: tpe)"
    )
    parser.add_argument("--seed", default="0", metavar="NUMBER", help="seed of the sampler (default: 0)")
    parser.add_argument(
        "--no-pruning", action="store_true", help="do not stop a trial early if its score is worse than the median"
    )
    parser.add_argument(
        "-o", "--output", metavar="FOLDER", help="folder of the search (default: outputs/searches/<keys>-<hash>)"
    )
    return parser


def plan_search(options: argparse.Namespace) -> Any:
    """Check the configs at the ends of the ranges and at each value of a choice, and return the plan of the search."""
    from proxlearn.sweeps.search import VALIDATION_FRACTION, SearchPlan, check_metric, trial_config
    from proxlearn.sweeps.search_space import parse_space

    fixed, space = parse_space(options.overrides)
    if not any(word.startswith("validation_fraction=") for word in fixed):
        fixed.append(f"validation_fraction={VALIDATION_FRACTION}")
    seed = integer(at_least=0, below=2**32, example=0)("--seed", parse_number(options.seed))
    plan = SearchPlan(
        tuple(fixed), tuple(space.values()), options.metric or "", options.sampler, seed, not options.no_pruning
    )
    most = max(len(p.values) for p in plan.space)
    checked = [{p.key: str(p.values[min(i, len(p.values) - 1)]) for p in plan.space} for i in range(most)]
    configs = [trial_config(plan, values) for values in checked]
    if configs[0].validation_fraction is None:
        raise InputError(
            "validation_fraction=null leaves no rows on which to score the trials", "leave it out, or set a fraction"
        )
    metric = check_metric(configs[0], options.metric)
    return SearchPlan(plan.overrides, plan.space, metric, plan.sampler, seed, plan.prunes)
