"""What `train` and `resume` share: one session of a run, told to the user, as an exit code."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

from proxlearn.config.schema import TrainConfig
from proxlearn.errors import ProxlearnError, StoppedBySignal, continue_command
from proxlearn.files.user_paths import display_path
from proxlearn.run.outcome import Outcome
from proxlearn.terminal.notice import notice
from proxlearn.terminal.streams import try_write
from proxlearn.text import printable_lines


def run_session(config: TrainConfig, folder: Path, command: str, go_on: str) -> int:
    """Train in ``folder``, draw, and say how it went; ``go_on`` tells how a stopped run is continued."""
    try:
        outcome = train_and_draw(config, folder, command)
    except ProxlearnError as error:
        notice(str(error))
        return error.exit_code
    if outcome.signal is not None:
        notice(f"stopped at step {outcome.step}; {go_on} goes on from there")
        return 128 + outcome.signal
    return 0


def train_and_draw(config: TrainConfig, folder: Path, command: str) -> Outcome:
    """Train in ``folder`` and draw, telling the user; what goes wrong is raised."""
    numbers = {"beta": config.beta, "epsilon": config.epsilon, "steps": config.steps}
    given = "".join(f", {name}={value:g}" for name, value in numbers.items() if value is not None)
    echo(f"proxlearn: {config.dataset.name}, N={config.N}{given} -> {display_path(folder)}\n")
    # torch, pandas and matplotlib take seconds to import: not before the input is known to be good.
    from proxlearn.files.atomic import disk_errors_as_run_error
    from proxlearn.memory import out_of_memory_as_run_error
    from proxlearn.run.logger_session import log_session_end
    from proxlearn.run.train import train
    from proxlearn.views.run.run_views import render_run, summary

    with out_of_memory_as_run_error():
        outcome = train(config, folder, command)
    if outcome.already_finished:
        more = f"{outcome.longest_steps}, as asked for before," if outcome.longest_steps > outcome.step else "More"
        echo(f"Finished before, with {outcome.step} steps: nothing to do. {more} steps= would continue it.\n")
    draws = f"{continue_command(config.overwrite)} draws what is missing"
    try:
        with disk_errors_as_run_error(folder, draws):
            log_session_end(config.logger, folder, render_run(folder))
    except KeyboardInterrupt as stopped:
        raise StoppedBySignal(signal.SIGINT, f"interrupted after step {outcome.step}", draws) from stopped
    echo(summary(folder))
    return outcome


def echo(text: str) -> None:
    """Print lines for people on the standard output; a run goes on where nobody can read them."""
    try_write(printable_lines(text), sys.stdout)
