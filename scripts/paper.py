"""The paper reproduced: its runs, and the tables and figures that are made from them.

  python scripts/paper.py table4          make the runs that Table 4 lacks, then the table
  python scripts/paper.py --only runs     all runs, in the order of reproduce/plan.py; stop it and start it at any time
  python scripts/paper.py --only build    all tables and figures, from the runs as they are
  python scripts/paper.py --quick         everything with a hundredth of the steps, into outputs/paper-quick

A second process with the same command works beside the first: each leaves alone the run that the other is at.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from reproduce.plan import PLAN
from reproduce.runner import make


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a hundredth of the steps, into outputs/paper-quick")
    parser.add_argument("--only", choices=("runs", "build"))
    parsed = parser.parse_args()
    root = Path("outputs/paper-quick" if parsed.quick else "outputs/paper")
    return make(PLAN, root, parsed.quick)


if __name__ == "__main__":
    sys.exit(main())
