"""The entry point of ``python -m proxlearn``, which runs a command without an installed console script."""

from proxlearn.cli import console

console()
