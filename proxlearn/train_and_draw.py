"""One session of a run, for `train`, `fit` and `resume`: training, plots, messages to the user and the exit code."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from proxlearn.config.schema import TrainConfig
from proxlearn.data.table_problems import TableProblems
from proxlearn.errors import ProxlearnError, StoppedBySignal, continue_command
from proxlearn.files.safe_read import display_path
from proxlearn.portability import return_freed_memory
from proxlearn.printable_text import printable_lines
from proxlearn.run.observed_status import Outcome
from proxlearn.terminal.streams import notice, try_write

if TYPE_CHECKING:  # torch takes seconds to import, so the input is checked first.
    from proxlearn.distributed.world import World
    from proxlearn.run.observers import Callback


def run_session(
    config: TrainConfig,
    folder: Path,
    command: str,
    continuation: str,
    summary: Callable[[Path], str] | None = None,
    world: World | None = None,
) -> int:
    """Train in ``folder``, draw the results, and return the exit code.

    ``continuation`` names the command that continues the run after a signal. ``summary`` returns the text that is
    printed at the end; by default, it is the summary of `train`. ``world`` represents the ranks that train the run
    together.
    """
    try:
        outcome = train_and_draw(config, folder, command, summary=summary, world=world)
    except TableProblems as error:
        # The remedy repeats the command with additional settings.
        common = error.for_command(command) if world is None else world.settle(error.for_command(command))
        notice(str(common))
        return common.exit_code
    except ProxlearnError as error:
        common = error if world is None else world.settle(error)
        notice(str(common))
        return common.exit_code
    if outcome.signal is not None:
        notice(f"stopped at step {outcome.step}; {continuation} continues from there")
        return 128 + outcome.signal
    return 0


def train_and_draw(
    config: TrainConfig,
    folder: Path,
    command: str,
    *,
    callbacks: Sequence[Callback] = (),
    plots: bool = True,
    verbose: bool = True,
    summary: Callable[[Path], str] | None = None,
    world: World | None = None,
) -> Outcome:
    """Train in ``folder``, draw the results, print the summary, and return the outcome of the session.

    If several ranks train the run together (``world``), only rank 0 draws and prints.
    """
    is_first = world is None or world.rank == 0
    verbose = verbose and is_first
    numbers = {"beta": config.beta, "epsilon": config.epsilon, "steps": config.steps}
    given = "".join(f", {name}={value:g}" for name, value in numbers.items() if value is not None)
    name = config.dataset.name if config.dataset.path is None else Path(config.dataset.path).name
    header = f"proxlearn: {name}, N={config.N}{given} -> {display_path(folder)}\n"
    # torch, pandas and matplotlib take seconds to import, so the input is checked first.
    from proxlearn.files.atomic import disk_errors_as_run_error
    from proxlearn.memory import out_of_memory_as_run_error
    from proxlearn.run.logger_session import log_session_end
    from proxlearn.run.observers import SessionOptions
    from proxlearn.run.train import train

    options = SessionOptions(callbacks, progress=verbose, on_valid=partial(echo, header) if verbose else None)
    with out_of_memory_as_run_error():
        outcome = train(config, folder, command, options, world)
    if not is_first:
        return outcome
    if outcome.signal is not None:
        # Drawing takes seconds, and a signal must end the command within two; the next session draws the results.
        with disk_errors_as_run_error(folder):
            log_session_end(config.logger, folder, [])
        return outcome
    if world is not None:
        return_freed_memory()
    # Imported after the training, because the plotting code takes up a hundred megabytes that a large cloud may need.
    from proxlearn.views.run import run_views

    if outcome.already_finished and verbose:
        longest = outcome.longest_steps
        target = f"steps={longest}, as requested earlier" if longest > outcome.step else "a larger value of steps"
        echo(f"The run has already finished at step {outcome.step}. To continue it, use {target}.\n")
    remedy = f"{continue_command(config.overwrite)} draws the missing tables and plots"
    try:
        with disk_errors_as_run_error(folder, remedy):
            log_session_end(config.logger, folder, run_views.render_run(folder) if plots else [])
    except KeyboardInterrupt as stopped:
        raise StoppedBySignal(signal.SIGINT, f"interrupted after step {outcome.step}", remedy) from stopped
    if verbose:
        echo((summary or run_views.summary)(folder))
    return outcome


def echo(text: str) -> None:
    """Print ``text`` on standard output; a closed or full output does not stop the run."""
    try_write(printable_lines(text), sys.stdout)
