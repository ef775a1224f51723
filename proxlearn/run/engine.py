"""Which code makes the steps of a run: chosen once at its start, stored in it, and kept when it is continued."""

from __future__ import annotations

from proxlearn.errors import InputError
from proxlearn.run.experiment import Experiment
from proxlearn.training import engine
from proxlearn.training.engine import Step


def choose_engine(experiment: Experiment, earlier: str | None) -> str:
    """The engine of a new run, or the one that an earlier session of the run used."""
    config = experiment.config
    why_not = engine.fused_obstacle(experiment.problem.neuron, experiment.device.type)
    if earlier is not None:
        if earlier == "fused" and why_not:
            raise InputError(f"this run was begun with the fused engine, but {why_not}", "continue it where it can run")
        return earlier
    if config.solver == "literal":
        return "literal"
    if config.compile == "on" and why_not:
        raise InputError(f"compile=on, but {why_not}", "use compile=auto")
    return "eager" if why_not or config.compile == "off" else "fused"


def make_step(which: str, experiment: Experiment, threads: int) -> Step:
    """The step function of a run, in the experiment's precision, at its first numbers."""
    return engine.make_step(which, experiment.problem, experiment.hyper, experiment.config.N, threads)
