"""The command line: a table of commands. Each takes its words and returns an exit code.

Nothing heavy is imported here: ``proxlearn --help`` must answer at once. ``train`` composes its config with Hydra;
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
from proxlearn.errors import ProxlearnError, RunError, did_you_mean, system_failure
from proxlearn.memory import is_out_of_memory
from proxlearn.terminal.notice import notice
from proxlearn.terminal.streams import OutputClosed, OutputError, open_standard_streams, require_output


@dataclass(frozen=True)
class Command:
    """A command's module (which has ``main(args) -> exit code``) and its line in the help."""

    module: str
    help: str
    prints: bool = False
    """Whether its result is what it prints, and not files."""


COMMANDS = {
    "train": Command(
        "proxlearn.commands.train", "train a cloud of neurons: Hydra overrides such as dataset=wdbc beta=0.05"
    ),
    "resume": Command("proxlearn.commands.resume", "go on with a run from its folder alone"),
    "status": Command(
        "proxlearn.commands.status", "what runs and sweeps are doing: progress, time left, risk, state", prints=True
    ),
    "predict": Command(
        "proxlearn.commands.predict", "labels, probabilities and spread of new rows, from a folder", prints=True
    ),
    "evaluate": Command(
        "proxlearn.commands.evaluate", "accuracy, log-loss, calibration or RMSE on labelled rows", prints=True
    ),
    "data": Command("proxlearn.commands.data", "list the datasets; fetch and verify their files", prints=True),
    "bench": Command("proxlearn.commands.bench", "time the recursion here, beside the paper's algorithms as printed"),
    "compare": Command("proxlearn.commands.compare", "networks, samplers and reference lines on the same splits"),
    "paper": Command("proxlearn.commands.paper", "the paper's tables and figures from the stored runs; its runs"),
    "plot": Command("proxlearn.commands.plot", "draw the tables and plots of runs and sweeps again"),
    "report": Command("proxlearn.commands.report", "one HTML page about runs and sweeps: curves, weights, the cloud"),
    "film": Command("proxlearn.commands.film", "the cloud in motion, as a GIF or an MP4"),
}
"""Every command: a new one is added here."""

PRINTING = {"-h", "--help", "-c", "--cfg", "-i", "--info", "--hydra-help"}
"""Options that make any command print something and do nothing else."""

EXAMPLES = """\
examples:
  proxlearn train dataset=wdbc beta=0.05                           one run
  proxlearn train dataset=wdbc beta=0.05 steps=2000                a short one
  proxlearn train -m dataset=wdbc beta=0.03,0.04,0.07 steps=2000   a sweep
  proxlearn train dataset=wdbc --cfg job                           show the config, run nothing
  proxlearn train -m beta=0.03,0.05,0.07 hydra/launcher=joblib     on all cores; again: what is missing
  proxlearn status --watch                                         how it goes
  proxlearn resume outputs/wdbc/NAME --steps 5000                  go on, or further
  proxlearn train dataset=csv dataset.path=my.csv dataset.target=label   your own table
  proxlearn predict outputs/csv/NAME --data new.csv -o out.csv     new rows
  proxlearn data                                                   what there is to train on
  proxlearn plot outputs/wdbc/*                                    draw again
  proxlearn report outputs/wdbc/NAME                               a page to look at it, and to send on
  proxlearn film outputs/banana/NAME -o film.mp4                   the cloud in motion

`proxlearn COMMAND --help` tells more. Tab completion: eval "$(proxlearn -sc install=bash)"
"""


def usage() -> str:
    lines = ["usage: proxlearn COMMAND ...", "", "Proximal mean field learning, run from configs.", "", "commands:"]
    lines += [f"  {name:<9}{command.help}" for name, command in COMMANDS.items()]
    lines += ["", "options:", "  -h, --help     this page", "  --version      the version", ""]
    return "\n".join(lines) + "\n" + EXAMPLES


def run(name: str, args: list[str]) -> int:
    """Run one command; an expected error becomes one line on stderr and its exit code."""
    try:
        code: int = importlib.import_module(COMMANDS[name].module).main(args)
        return code
    except ProxlearnError as error:
        notice(str(error))
        return error.exit_code
    except OutputClosed:
        # `proxlearn data | head`: the reader has what it wanted.
        return 0
    except (OSError, MemoryError) as error:
        notice(str(system_failure(error)))
        return RunError.exit_code
    except RuntimeError as error:
        # torch has its own kind of MemoryError; any other RuntimeError is a mistake in the program, to be seen whole.
        if not is_out_of_memory(error):
            raise
        notice(str(system_failure(error)))
        return RunError.exit_code
    except KeyboardInterrupt:
        # While a run is recursing it stops by itself; this is before or after.
        again = "starts again, and without overwrite=true " if "overwrite=true" in map(str.lower, args) else ""
        notice(f"interrupted; the same command {again}goes on")
        return 130


def complete(args: list[str]) -> int:
    """Shell completion: the command's name is ours to complete, the rest is Hydra's."""
    words = os.environ.get("COMP_LINE", "").split()
    if args and args[0].startswith("query="):
        on_first = len(words) < 2 or (len(words) == 2 and not os.environ["COMP_LINE"].endswith(" "))
        if on_first:
            prefix = words[1] if len(words) == 2 else ""
            print(" ".join(name for name in COMMANDS if name.startswith(prefix)))
            return 0
        if words[1] != "train":
            return 0
        # Hydra knows no subcommands: it sees the line without it.
        os.environ["COMP_LINE"] = os.environ["COMP_LINE"].replace(" train", "", 1)
    return run("train", ["-sc", *args])


def main(argv: list[str] | None = None) -> int:
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
    if not _is_somewhere():
        notice("the working directory has been removed; change to a folder that exists")
        return 2
    return run(first, rest)


def _is_somewhere() -> bool:
    try:
        os.getcwd()
    except FileNotFoundError:
        return False
    return True


def console() -> NoReturn:
    """The console script: ``main``, and then the end at once.

    Taking thousands of modules apart at exit would keep the user waiting for a second; every file is closed by now, and
    what libraries have left to do is done (joblib removes a folder). So would looking for garbage, time and again,
    among the million objects that the imports make and that stay.
    """
    gc.set_threshold(100_000, 50, 100)
    open_standard_streams()
    try:
        code = main()
        # Here and not at the end: what is still to be written of a result can fail too.
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
    """argparse's and Hydra's own ends: after --help, and of a command that they cannot read."""
    try:
        sys.stdout.flush()
    except OutputError as failure:
        notice(str(failure))
        return failure.exit_code
    except OutputClosed:
        return 0
    return error.code if isinstance(error.code, int) else int(error.code is not None)
