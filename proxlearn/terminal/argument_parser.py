"""The argument parser of a command, whose help shows the description and the examples with their line breaks."""

from __future__ import annotations

import argparse


def command_parser(command: str, description: str, examples: str = "") -> argparse.ArgumentParser:
    """Return the parser of ``proxlearn <command>``, whose help shows ``examples`` below the options."""
    return argparse.ArgumentParser(
        prog=f"proxlearn {command}",
        description=description,
        epilog=f"examples:\n{examples}" if examples else None,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
