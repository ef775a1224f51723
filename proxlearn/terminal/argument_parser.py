"""The argument parser of a command, whose help keeps the line breaks of its texts."""

from __future__ import annotations

import argparse


def command_parser(command: str, description: str, examples: str = "") -> argparse.ArgumentParser:
    """Create the parser of ``proxlearn <command>``; ``examples`` are shown below the options."""
    return argparse.ArgumentParser(
        prog=f"proxlearn {command}",
        description=description,
        epilog=f"examples:\n{examples}" if examples else None,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
