"""A substitute for `sacct` on clusters without accounting; it prints the columns that submitit reads.

The columns are obtained from `scontrol`. SLURM deletes the record of a job some minutes after the job has ended,
but submitit polls often enough to detect the end before then.
"""

from __future__ import annotations

import re
import subprocess
import sys
from itertools import pairwise

HEADER = "JobID|State|NodeList"


def rows(jobs: str) -> list[str]:
    """Convert the output of `scontrol show job --oneliner` to lines of `sacct`, one per job."""
    lines = []
    for line in jobs.splitlines():
        fields = dict(re.findall(r"(\w+)=(\S*)", line))
        if "JobId" not in fields:
            continue
        array = fields.get("ArrayJobId")
        number = f"{array}_{fields['ArrayTaskId']}" if array and "ArrayTaskId" in fields else fields["JobId"]
        lines.append(f"{number}|{fields.get('JobState', 'UNKNOWN')}|{fields.get('NodeList', '')}")
    return lines


def main(args: list[str]) -> int:
    print(HEADER)
    job_ids = [word for flag, word in pairwise(args) if flag == "-j"]
    for number in dict.fromkeys(word.partition("_")[0] for word in job_ids):
        completed = subprocess.run(["scontrol", "show", "job", "--oneliner", number], capture_output=True, text=True)
        print("\n".join(rows(completed.stdout)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
