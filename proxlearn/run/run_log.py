"""The log of a run: all messages go to train.log, and warnings also go to the terminal."""

from __future__ import annotations

import logging
import sys
from pathlib import Path

from proxlearn.files.atomic import break_hard_links
from proxlearn.printable_text import printable


class QuietFileHandler(logging.FileHandler):
    """A file handler that ignores write errors, such as a full disk, because the run reports these errors itself."""

    def handleError(self, record: logging.LogRecord) -> None:
        pass


class TerminalFormatter(logging.Formatter):
    """A formatter that writes a record as one line without control characters, as it may quote a damaged file."""

    def format(self, record: logging.LogRecord) -> str:
        return printable(super().format(record))


def open_run_log(path: Path) -> logging.Logger:
    """Return a logger for one run, independent of other runs in this process, that appends to ``path``.

    The caller closes its handlers.
    """
    logger = logging.Logger("proxlearn.run")
    break_hard_links(path)
    file = QuietFileHandler(path, encoding="utf-8")
    file.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    logger.addHandler(file)
    terminal = logging.StreamHandler(sys.stderr)
    terminal.setLevel(logging.WARNING)
    terminal.setFormatter(TerminalFormatter("proxlearn: %(message)s"))
    logger.addHandler(terminal)
    return logger
