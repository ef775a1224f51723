"""``proxlearn verify``: compare the recursion with flows whose solutions are known."""

from __future__ import annotations

from pathlib import Path

from proxlearn.errors import InputError, did_you_mean
from proxlearn.files.safe_read import absolute_folder
from proxlearn.terminal.argument_parser import command_parser
from proxlearn.terminal.streams import notice
from proxlearn.train_and_draw import echo
from proxlearn.validators import integer, parse_number

EXPERIMENTS = ("weights",)
DESCRIPTION = """\
Test the recursion on flows whose solutions are known: the distribution of the particles for several step sizes and
numbers of particles, the weights compared with the density at the particles and with controls, and the free energy
along the flow. The flows are Ornstein-Uhlenbeck in 1 to 32 dimensions and a quadratic interaction (closed forms), and
a double well, an aggregation energy and a network with one parameter (finite volumes).

The results are stored one by one in FOLDER/results.jsonl, and the same command computes the missing ones.
The page FOLDER/verify.md begins with the conclusion. The command takes less than half an hour on two cores.

--experiment weights runs an experiment that tests whether the weights lower the risk of a network (about half an hour
on two cores; needs the data file of banana). Its page, FOLDER/experiment.md, begins with the conclusion and the design.
"""
EXAMPLES = """\
  proxlearn verify                        all tests, into outputs/verify
  proxlearn verify --quick                a part of the tests, one to a few minutes, into outputs/verify-quick
  proxlearn verify --page                 only write the page from the stored results
  proxlearn verify --experiment weights   the experiment with the weights
"""


def main(args: list[str]) -> int:
    parser = command_parser("verify", DESCRIPTION, EXAMPLES)
    parser.add_argument("--quick", action="store_true", help="test fewer flows, settings and seeds")
    parser.add_argument(
        "--experiment",
        metavar="NAME",
        help=f"run an experiment instead of the measurements: {', '.join(EXPERIMENTS)}",
    )
    parser.add_argument("--page", action="store_true", help="only write the page from the stored results")
    parser.add_argument(
        "--jobs", metavar="N", help="number of parallel jobs, with one thread each (default: number of cores)"
    )
    parser.add_argument(
        "-o",
        "--output",
        metavar="FOLDER",
        help="folder of the results (default: outputs/verify; with --quick: outputs/verify-quick)",
    )
    options = parser.parse_args(args)
    if options.experiment is not None and options.experiment not in EXPERIMENTS:
        raise InputError(f"unknown experiment `{options.experiment}`", did_you_mean(options.experiment, EXPERIMENTS))
    if options.experiment is not None and options.quick:
        raise InputError("--quick has no effect with --experiment", "leave out --quick")
    jobs = (
        None
        if options.jobs is None
        else integer(at_least=1, below=4097, example=2)("--jobs", parse_number(options.jobs))
    )
    folder = absolute_folder(options.output or ("outputs/verify-quick" if options.quick else "outputs/verify"))
    # torch and the flows are imported only after the arguments are validated.
    from proxlearn.jobs.launcher_setup import available_cores
    from proxlearn.verify import page, weights_experiment_page
    from proxlearn.verify.pieces import compute
    from proxlearn.verify.plan import plan
    from proxlearn.verify.weights_experiment import banana_table

    is_experiment = options.experiment is not None
    pieces = weights_experiment_page.pieces() if is_experiment else plan(options.quick)
    results = folder / ("experiment.jsonl" if is_experiment else "results.jsonl")
    code = 0
    if not options.page:
        if is_experiment:
            # The data are read first, so that a missing file is reported before the first fit.
            banana_table()
        code = compute(pieces, results, jobs or available_cores(), "verify")
        if code > 128:
            notice("stopped; the same command computes the missing results")
            return code
    write = weights_experiment_page.write if is_experiment else page.write
    paths: list[Path] = write(pieces, results, folder)
    if not paths:
        notice(f"there are no results in {folder} yet; leave out --page to compute them")
        return max(code, 1)
    for path in paths:
        echo(f"{path}\n")
    return code
