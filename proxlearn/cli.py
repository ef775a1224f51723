"""The command-line interface: a table of the commands, and the function that runs a command.

Every command has a module with a function ``main`` that takes the arguments and returns an exit code. Modules that are
slow to import are not imported here, so that ``proxlearn --help`` is fast. ``train`` composes its config with Hydra;
every other command uses argparse.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import os
import sys
import traceback
from dataclasses import dataclass
from typing import NoReturn

from proxlearn import __version__
from proxlearn.distributed.rank_environment import DEFAULT_TIMEOUT, Launch, find_launch, read_timeout
from proxlearn.errors import InputError, ProxlearnError, RunError, did_you_mean, system_failure
from proxlearn.memory import is_out_of_memory
from proxlearn.portability import return_freed_arrays
from proxlearn.terminal.streams import OutputClosed, OutputError, notice, open_standard_streams, require_output


@dataclass(frozen=True)
class Command:
    """A command of ``proxlearn``: the module that defines its function ``main(args)``, and its line in the help."""

    module: str
    help: str
    prints: bool = False
    """Whether the command prints its result instead of writing it to files."""


COMMANDS = {
    "fit": Command("proxlearn.commands.fit", "train on your own table: proxlearn fit my.csv --target label"),
    "train": Command(
        "proxlearn.commands.train", "train a cloud of neurons; takes overrides such as dataset=wdbc beta=0.05"
    ),
    "search": Command(
        "proxlearn.commands.search", "search for the best hyperparameters on held-out training rows (Optuna)"
    ),
    "resume": Command("proxlearn.commands.resume", "continue a run from its folder"),
    "status": Command(
        "proxlearn.commands.status", "list runs and sweeps: progress, time left, risk, state", prints=True
    ),
    "predict": Command(
        "proxlearn.commands.predict",
        "predict the targets of new rows, with probabilities and standard errors",
        prints=True,
    ),
    "evaluate": Command(
        "proxlearn.commands.evaluate", "compute accuracy, log-loss, calibration or RMSE on labelled rows", prints=True
    ),
    "data": Command("proxlearn.commands.data", "list the datasets; fetch and verify their files", prints=True),
    "bench": Command(
        "proxlearn.commands.bench", "measure the speed of the recursion and of the paper's algorithms as printed"
    ),
    "compare": Command("proxlearn.commands.compare", "compare networks, samplers and baselines on the same splits"),
    "verify": Command(
        "proxlearn.commands.verify", "compare the recursion with flows that have known solutions, and test the weights"
    ),
    "paper": Command(
        "proxlearn.commands.paper", "rebuild the paper's tables and figures from stored runs, or start the missing runs"
    ),
    "plot": Command("proxlearn.commands.plot", "create the tables and plots of runs and sweeps again"),
    "report": Command(
        "proxlearn.commands.report", "write an HTML page about runs and sweeps: curves, weights and the cloud"
    ),
    "film": Command("proxlearn.commands.film", "animate the cloud as a GIF or an MP4"),
}
"""The commands by name."""

ON_RANKS = ("train", "resume")
"""Commands that several processes can run together; all other commands run in one process."""

PRINTING = {"-h", "--help", "-c", "--cfg", "-i", "--info", "--hydra-help"}
"""Options that make a command print information instead of running."""

EXAMPLES = """\
examples:
  proxlearn train dataset=wdbc beta=0.05                           one run
  proxlearn train dataset=wdbc beta=0.05 steps=2000                a short run
  proxlearn train -m dataset=wdbc beta=0.03,0.04,0.07 steps=2000   a sweep
  proxlearn train dataset=wdbc --cfg job                           print the config without training
  proxlearn train -m beta=0.03,0.05,0.07 hydra/launcher=joblib     on all cores; run it again for missing jobs
  proxlearn search dataset=banana "beta=log(0.01,10)" --trials 20  optimise a hyperparameter
  proxlearn status --watch                                         follow the progress
  proxlearn resume outputs/wdbc/NAME --steps 5000                  continue or extend a run
  proxlearn fit my.csv --target label -o result                    train on your own table
  proxlearn predict result --data new.csv -o out.csv               predict the targets of new rows
  proxlearn data                                                   list the datasets
  proxlearn plot outputs/wdbc/*                                    create the tables and plots again
  proxlearn report outputs/wdbc/NAME                               write a self-contained HTML page
  proxlearn film outputs/banana/NAME -o film.mp4                   animate the cloud

`proxlearn COMMAND --help` describes a command. Tab completion: eval "$(proxlearn -sc install=bash)"
"""


def usage() -> str:
    """Return the text of ``proxlearn --help``."""
    lines = ["usage: proxlearn COMMAND ...", "", "Proximal mean field learning.", "", "commands:"]
    lines += [f"  {name:<9}{command.help}" for name, command in COMMANDS.items()]
    lines += ["", "options:", "  -h, --help     print this help", "  --version      print the version", ""]
    return "\n".join(lines) + "\n" + EXAMPLES


def run(name: str, args: list[str]) -> int:
    """Run one command and return its exit code; an expected error is printed as one line on stderr."""
    try:
        launch = find_launch()
        if launch is not None and (name in ON_RANKS or launch.size > 1):
            return run_as_rank(name, args, launch)
        code: int = importlib.import_module(COMMANDS[name].module).main(args)
        return code
    except ProxlearnError as error:
        notice(str(error))
        return error.exit_code
    except OutputClosed:
        # In `proxlearn data | head`, `head` closes the pipe early, which is not an error.
        return 0
    except (OSError, MemoryError) as error:
        notice(str(system_failure(error)))
        return RunError.exit_code
    except RuntimeError as error:
        # torch raises a RuntimeError when memory runs out; any other RuntimeError is a bug and keeps its traceback.
        if not is_out_of_memory(error):
            raise
        notice(str(system_failure(error)))
        return RunError.exit_code
    except KeyboardInterrupt:
        # The training loop handles signals itself; this one arrived before or after the loop.
        overwrites = "overwrite=true" in map(str.lower, args)
        remedy = "start again, or leave out overwrite=true to continue" if overwrites else "continue"
        notice(f"interrupted; repeat the same command to {remedy}")
        return 130


def run_as_rank(name: str, args: list[str], launch: Launch) -> int:
    """Run one command as one of several processes that torchrun or srun has started."""
    if name not in ON_RANKS:
        if launch.rank == 0:
            notice(f"`proxlearn {name}` cannot be divided among several ranks; start it without torchrun or srun")
        return InputError.exit_code
    # The ranks on one machine share its memory, so each rank returns the memory that it no longer uses.
    return_freed_arrays()
    # This import is here because it imports torch, which takes seconds.
    from proxlearn.distributed.world import World

    # An invalid timeout is reported after the ranks have joined, so that rank 0 informs the user.
    timeout, invalid = DEFAULT_TIMEOUT, None
    try:
        timeout = read_timeout()
    except InputError as error:
        invalid = error
    world = World(launch, timeout)
    try:
        if invalid is not None:
            raise invalid
        code: int = importlib.import_module(COMMANDS[name].module).main(args, world)
        return code
    except ProxlearnError as error:
        raise world.settle(error) from error
    except BaseException as error:
        world.report_failure(error)
        raise


def complete(args: list[str]) -> int:
    """Print the tab completions of a command name; Hydra completes the arguments of `train`."""
    words = os.environ.get("COMP_LINE", "").split()
    if args and args[0].startswith("query="):
        completes_command = len(words) < 2 or (len(words) == 2 and not os.environ["COMP_LINE"].endswith(" "))
        if completes_command:
            prefix = words[1] if len(words) == 2 else ""
            print(" ".join(name for name in COMMANDS if name.startswith(prefix)))
            return 0
        if words[1] != "train":
            return 0
        # Hydra has no subcommands, so the subcommand is removed from the line.
        os.environ["COMP_LINE"] = os.environ["COMP_LINE"].replace(" train", "", 1)
    return run("train", ["-sc", *args])


def main(argv: list[str] | None = None) -> int:
    """Run the command that the first argument names, and return its exit code."""
    args = sys.argv[1:] if argv is None else argv
    first, rest = (args[0], args[1:]) if args else ("--help", [])
    options = {word.partition("=")[0] for word in rest}
    require_output(first not in COMMANDS or COMMANDS[first].prints or bool(options & PRINTING))
    if first in ("-h", "--help", "help"):
        print(usage(), end="")
        return 0 if args else 2
    if first == "--version":
        print(f"proxlearn {__version__}")
        return 0
    if first in ("-sc", "--shell-completion"):
        return complete(rest)
    if first not in COMMANDS:
        notice(f"unknown command `{first}`; {did_you_mean(first, COMMANDS)}")
        return 2
    if not _directory_exists():
        notice("the working directory has been removed; change to a folder that exists")
        return 2
    limit_spinning()
    return run(first, rest)


SPIN_COUNT = "4000"
"""Number of iterations, a few microseconds in total, for which an idle thread of GNU OpenMP spins before it sleeps.

By default, an idle thread spins for milliseconds, so two simultaneous runs slow each other down: on WDBC, both took
27.7 s by default and 8.4 s with this limit, whereas one run alone took 5.6 s. With the limit, a single run on an idle
machine is 5 % slower.
"""


def limit_spinning() -> None:
    """Make idle OpenMP threads sleep after a few microseconds, unless the user has set how long they spin.

    This function must be called before torch is imported.
    """
    if not {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT"} & os.environ.keys():
        os.environ["GOMP_SPINCOUNT"] = SPIN_COUNT


def _directory_exists() -> bool:
    """Return whether the working directory still exists."""
    try:
        os.getcwd()
    except FileNotFoundError:
        return False
    return True


def console() -> NoReturn:
    """Run ``main`` as the console script, then end the process without the usual shutdown of the interpreter.

    Unloading thousands of modules would take about a second. This is not needed, because every file is already closed;
    the exit functions that libraries have registered are still called (joblib removes a temporary folder). Raising the
    thresholds of the garbage collector saves about as much time, because the imports create a million objects, none of
    which becomes garbage.
    """
    gc.set_threshold(100_000, 50, 100)
    open_standard_streams()
    try:
        code = main()
        # The flush is inside the try block, because writing the rest of a result can also fail.
        sys.stdout.flush()
    except SystemExit as error:
        code = _exit_code(error)
    except OutputError as error:
        notice(str(error))
        code = error.exit_code
    except OutputClosed:
        code = 0
    except BaseException:
        traceback.print_exc()
        code = 1
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)


def _exit_code(error: SystemExit) -> int:
    """Flush standard output and return the exit code of a SystemExit, which argparse and Hydra raise."""
    try:
        sys.stdout.flush()
    except OutputError as failure:
        notice(str(failure))
        return failure.exit_code
    except OutputClosed:
        return 0
    return error.code if isinstance(error.code, int) else int(error.code is not None)
