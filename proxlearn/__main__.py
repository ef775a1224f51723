"""Run the command line with ``python -m proxlearn``, which does not require an installation."""

from proxlearn.cli import console

console()
