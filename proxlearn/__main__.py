"""``python -m proxlearn``: the console script without an installation."""

from proxlearn.cli import console

console()
