"""Verdicts on whether results agree with those of the paper, and their summary in one sentence."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from proxlearn.compare.statistics import MeanSd, without_negative_zero
from proxlearn.paper.archive import ArchivedRun

PARTIAL = "no verdict: partial"


def verdict(ours: MeanSd, paper: MeanSd, allowance: float, digits: int, complete: bool) -> str:
    """Return the verdict: two means agree within ``allowance`` or twice their joint standard deviation."""
    if not complete or math.isnan(ours.mean):
        return PARTIAL
    difference = f"{without_negative_zero(ours.mean - paper.mean, digits):+.{digits}f}"
    distance = abs(ours.mean - paper.mean)
    spread = 2 * math.hypot(*(0.0 if math.isnan(figure.sd) else figure.sd for figure in (ours, paper)))
    if distance <= spread:
        return f"agrees within the spread ({difference})"
    if distance <= allowance:
        return f"agrees within {allowance:.{digits}f} ({difference})"
    # The spread of a single run is unknown.
    one_run = " (one run)" if math.isnan(ours.sd) else ""
    return f"differs by {difference}{one_run}"


def conclusion(verdicts: Mapping[str, str], noun: str) -> str:
    """Return one line that states how many results agree and which do not; ``verdicts`` maps subjects to verdicts."""
    decided = {name: words for name, words in verdicts.items() if words != PARTIAL}
    partial = [name for name in verdicts if name not in decided]
    different = [f"{name} {words}" for name, words in decided.items() if words.startswith("differs")]
    if not decided:
        return f"There is no verdict, because the runs are shorter than the paper's ({len(partial)} {noun})."
    agreeing = len(decided) - len(different)
    if len(decided) > 1 and not different:
        count = "Both" if len(decided) == 2 else f"All {len(decided)}"
        line = f"{count} {noun} agree with the paper's."
    else:
        line = f"{agreeing} of {len(decided)} {noun} agree with the paper's"
        line += f"; {'; '.join(different)}." if different else "."
    return line + (
        f" There is no verdict on {', '.join(partial)}, because runs are missing or too short." if partial else ""
    )


def is_complete(runs: Sequence[ArchivedRun], steps: int) -> bool:
    """Return whether there are runs and all of them have at least ``steps`` recursions."""
    return bool(runs) and all(run.last_step >= steps for run in runs)


def length_text(runs: Sequence[ArchivedRun], steps: int | None = None) -> str:
    """Return the number of recursions of the runs as a string, followed by "of STEPS" if a run is shorter."""
    lengths = sorted({run.last_step for run in runs})
    text = " to ".join(str(length) for length in dict.fromkeys((lengths[0], lengths[-1]))) if lengths else "none"
    return text if steps is None or is_complete(runs, steps) else f"{text} of {steps}"
