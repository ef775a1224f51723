"""Run the command line with ``python -m proxlearn``, which works without an installation."""

from proxlearn.cli import console

console()
