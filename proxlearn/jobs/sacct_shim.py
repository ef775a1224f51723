"""`sacct` for clusters without accounting, answering from `scontrol show job`: the three columns that submitit reads.

SLURM forgets a job some minutes after its end; submitit asks often enough to have heard of it by then.
"""

from __future__ import annotations

import re
import subprocess
import sys
from itertools import pairwise

HEADER = "JobID|State|NodeList"


def rows(shown: str) -> list[str]:
    """One line a job of `scontrol show job --oneliner`."""
    found = []
    for line in shown.splitlines():
        fields = dict(re.findall(r"(\w+)=(\S*)", line))
        if "JobId" not in fields:
            continue
        array = fields.get("ArrayJobId")
        number = f"{array}_{fields['ArrayTaskId']}" if array and "ArrayTaskId" in fields else fields["JobId"]
        found.append(f"{number}|{fields.get('JobState', 'UNKNOWN')}|{fields.get('NodeList', '')}")
    return found


def main(args: list[str]) -> int:
    print(HEADER)
    asked = [word for flag, word in pairwise(args) if flag == "-j"]
    for number in dict.fromkeys(word.partition("_")[0] for word in asked):
        shown = subprocess.run(["scontrol", "show", "job", "--oneliner", number], capture_output=True, text=True)
        print("\n".join(rows(shown.stdout)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
