"""The paper reproduced: `python scripts/paper.py --help`; `make help` lists the same by name."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from reproduce.plan import PLAN
from reproduce.runner import make


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a hundredth of the steps, into outputs/paper-quick")
    parsed = parser.parse_args()
    root = Path("outputs/paper-quick" if parsed.quick else "outputs/paper")
    return make(PLAN, root, parsed.quick)


if __name__ == "__main__":
    sys.exit(main())
