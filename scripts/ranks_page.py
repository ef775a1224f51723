#!/usr/bin/env python3
"""Compare one cloud on two ranks with one process, and write docs/ranks.md from the measurements.

python scripts/ranks_page.py run       one process with two threads and two ranks with one thread each, in turn, three
                                       times; adds rows to outputs/ranks/measured.csv (12 minutes)
python scripts/ranks_page.py probe     the memory of a process without a cloud, the work that every rank repeats, and
                                       the rate of an exchange; adds a row to outputs/ranks/probed.csv (1 minute)
python scripts/ranks_page.py page      write docs/ranks.md

run and probe refuse to start on a machine that other processes use. With --busy, they start nevertheless; the page then
uses the peak memory and the numbers of bytes of these measurements, but not their times.
"""

from __future__ import annotations

import argparse
import csv
import json
import math
import os
import re
import resource
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

ROOT = Path(__file__).resolve().parents[1]
MEASURED, PROBED = ROOT / "outputs" / "ranks" / "measured.csv", ROOT / "outputs" / "ranks" / "probed.csv"
PAGE = ROOT / "docs" / "ranks.md"
N, P, N_X, STEPS = 100_000, 32, 30, 3
ROWS = 399
"""Number of training rows of WDBC; a particle has p = N_X + 2 coordinates."""
FEW = 256
"""Number of particles in the run that measures the memory of a process without a large cloud."""
MOST_LOAD = 1.0
"""Load below which the machine counts as idle."""
MESSAGE_BYTES = 2**20
"""Size of the parts in which the locations are exchanged, as in proxlearn/core/sharding.py."""


def check_idle(busy: bool) -> bool:
    """Return whether the machine's load is below MOST_LOAD; if it is not and ``busy`` is false, end the program."""
    load = os.getloadavg()[0]
    if load >= MOST_LOAD and not busy:
        sys.exit(
            f"ranks_page: the load of this machine is {load:.1f}; wait until it is below {MOST_LOAD}, or add --busy"
        )
    return load < MOST_LOAD


def run(busy: bool, repeats: int) -> None:
    """Train WDBC for three steps from cloud_0 with N = 100000, alternately in one process and on two ranks."""
    idle = check_idle(busy)
    for _ in range(repeats):
        for kind in ("one", "two"):
            add_row(MEASURED, kind=kind, idle="yes" if idle else "no", **train(kind, N))


def train(kind: str, N: int) -> dict[str, object]:
    """Run `proxlearn train` in one process (``kind`` is "one") or on two ranks ("two"), and return the measurements."""
    with tempfile.TemporaryDirectory() as folder:
        out, words = Path(folder) / "run", ["train", "dataset=wdbc", f"N={N}", f"steps={STEPS}", "films=false"]
        own = [sys.executable, str(Path(__file__)), "rank", f"{folder}/peak", *words, f"hydra.run.dir={out}"]
        launch = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--no-python"]
        threads = "2" if kind == "one" else "1"
        command = own if kind == "one" else launch + own
        subprocess.run(command, check=True, env=os.environ | {"OMP_NUM_THREADS": threads}, stdout=subprocess.DEVNULL)
        status = json.loads((out / "status.json").read_text())
        sent = re.search(r"sent (\d+) bytes in (\d+) step", (out / "train.log").read_text())
        with (out / "metrics.csv").open() as file:
            rounds = [int(row["sinkhorn_rounds"]) for row in csv.DictReader(file) if row["sinkhorn_rounds"]]
        peaks = [Path(f"{folder}/peak.{number}") for number in range(2)]
        return {
            "seconds": status["seconds"],
            "peak_MB": peaks[0].read_text(),
            "rank_1_peak_MB": peaks[1].read_text() if kind == "two" else "",
            "bytes_per_step": int(sent[1]) // int(sent[2]) if sent else "",
            "rounds_per_step": sum(rounds) / len(rounds),
        }


def rank(peak: str, args: list[str]) -> int:
    """Run `proxlearn` with ``args``, and write its peak memory in MB to the file "PEAK.RANK"."""
    code = subprocess.call([sys.executable, "-m", "proxlearn", *args])
    number = os.environ.get("RANK", "0")
    Path(f"{peak}.{number}").write_text(f"{resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024:.0f}")
    return code


def probe(busy: bool) -> None:
    """Measure the work that every rank repeats, the memory of a process without a cloud, and the rate of exchange."""
    import numpy as np
    import torch.multiprocessing as multiprocessing

    from proxlearn.core.fused.tile_order import LEAF, Boxes, tile_order

    idle = check_idle(busy)
    # The memory of rank 1 is used, because rank 1 draws no plots. In a small run, plots would increase the peak memory.
    base = train("two", FEW)["rank_1_peak_MB"]
    cloud = np.random.default_rng(0).uniform(-1, 1, (N, P)).astype(np.float32)
    seconds = []
    for _ in range(4):
        start = time.perf_counter()
        order = tile_order(cloud)
        Boxes.around((cloud[order, k] for k in range(P)), LEAF)
        seconds.append(time.perf_counter() - start)
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        os.environ["RANKS_PAGE_PORT"] = str(listening.getsockname()[1])
    context = multiprocessing.get_context("spawn")
    rates = context.Queue()
    processes = [context.Process(target=exchange_rate, args=(number, rates)) for number in range(2)]
    for process in processes:
        process.start()
    rate, latency = rates.get()
    for process in processes:
        process.join()
    add_row(
        PROBED,
        idle="yes" if idle else "no",
        base_MB=base,
        repeated_seconds=round(min(seconds[1:]), 4),
        MB_per_second=rate,
        latency_ms=latency,
    )


def exchange_rate(number: int, rates: object) -> None:
    import numpy as np
    import torch.distributed as dist

    from proxlearn.distributed.rank_environment import Launch
    from proxlearn.distributed.world import World

    world = World(Launch(number, 2, "127.0.0.1", int(os.environ["RANKS_PAGE_PORT"])), 60)

    def seconds(size: int, times: int) -> float:
        message = np.zeros(size)
        world.all_gather(message)
        start = time.perf_counter()
        for _ in range(times):
            world.all_gather(message)
        return (time.perf_counter() - start) / times

    large, small = seconds(N, 50), seconds(1, 200)
    dist.destroy_process_group()
    if number == 0:
        rates.put((round(8 * N / 2**20 / (large - small)), round(1000 * small, 3)))  # type: ignore[attr-defined]


def add_row(path: Path, **values: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    is_new = not path.exists() or not path.stat().st_size
    with path.open("a", newline="") as file:
        writer = csv.DictWriter(file, list(values), lineterminator="\n")
        if is_new:
            writer.writeheader()
        writer.writerow(values)


def bytes_per_step(ranks: int, sweeps: float, itemsize: int = 4) -> float:
    """Return the number of bytes that each of ``ranks`` ranks sends in a step; docs/ranks.md derives the formula."""
    share = (ranks - 1) / ranks
    sums = 2 * ROWS * itemsize * (ranks - 1)
    locations = N * (P + 1) * itemsize * share
    rounds = sweeps * (8 * N + 3 * 8 * N) * share + 8 * N * share
    return sums + locations + rounds


def messages(ranks: int, sweeps: float) -> float:
    """Return the number of exchanges in a step: two per sweep, one per part of the locations, and four others."""
    parts = -(-N * P * 4 // ranks // MESSAGE_BYTES)
    return 2 * sweeps + parts + 4


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open() as file:
        return list(csv.DictReader(file))


def median_of(rows: list[dict[str, str]], key: str) -> float:
    return median(float(row[key]) for row in rows)


def page() -> str:
    """Return the text of docs/ranks.md with tables of the stored measurements."""
    rows, probed = rows_of(MEASURED), rows_of(PROBED)
    one, two = ([row for row in rows if row["kind"] == kind] for kind in ("one", "two"))
    text = PAGE.read_text()
    tables = "\nNothing has been measured yet. Run `python scripts/ranks_page.py run`, then `probe` and `page`."
    if one and two and probed:
        idle = [[row for row in kind if row["idle"] == "yes"] for kind in (one, two)]
        tables = memory_table(one, two, float(probed[-1]["base_MB"]), idle)
        if all(idle) and probed[-1]["idle"] == "yes":
            tables += prediction(median_of(idle[1], "seconds") / STEPS, two, probed[-1])
    return re.sub(f"{BEGIN}.*{END}", lambda _: f"{BEGIN}{tables}\n{END}", text, flags=re.DOTALL)


def memory_table(
    one: list[dict[str, str]], two: list[dict[str, str]], base: float, idle: list[list[dict[str, str]]]
) -> str:
    """Return the table that compares one process with two ranks; it gives only times measured on an idle machine."""
    peak, ranks = median_of(one, "peak_MB"), [median_of(two, key) for key in ("peak_MB", "rank_1_peak_MB")]
    times = [value / peak for value in ranks]
    own, net = peak - base, [value - base for value in ranks]
    counted, formula = median_of(two, "bytes_per_step"), bytes_per_step(2, median_of(two, "rounds_per_step") + 1)
    seconds = "| seconds per step | not measured on an idle machine | |"
    if all(idle):
        first, second = (median_of(kind, "seconds") / STEPS for kind in idle)
        seconds = f"| seconds per step | {first:.1f} | {second:.1f} ({second / first:.2f} times) |"
    # The memory above the base is proportional to N, so the ratio of a rank's total memory to that of a single process
    # reaches 0.6 for a larger cloud.
    enough = 0.4 * base / (0.6 * own - max(net)) * N if 0.6 * own > max(net) else math.inf
    larger = f"about N = {round(enough, -4):.0f}" if enough < math.inf else "no N"
    return f"""
| WDBC, N = {N}, three steps from the initial cloud | one process, two threads | two ranks, one thread each |
|---|---|---|
{seconds}
| peak memory, MB | {peak:.0f} | {ranks[0]:.0f} and {ranks[1]:.0f} ({times[0]:.2f} and {times[1]:.2f} times) |
| peak memory minus the {base:.0f} MB of a process without a cloud | {own:.0f} | {net[0]:.0f} and {net[1]:.0f} \
({net[0] / own:.2f} and {net[1] / own:.2f} times) |
| MB sent per rank and step | 0 | {counted / 2**20:.2f} measured, {formula / 2**20:.2f} by the formulas |

Number of runs: {len(one)} with one process and {len(two)} with two ranks; peak memory and MB are medians over the runs.
Python, torch and Numba need memory in every process. If the remaining memory is proportional to N, a rank needs 0.6
times the memory of the single process at {larger}; this is an estimate and not a measurement."""


def prediction(seconds: float, two: list[dict[str, str]], probed: dict[str, str]) -> str:
    """Return a table of the predicted seconds per step on 4, 16 and 64 ranks, given those on two ranks."""
    sweeps, counted = median_of(two, "rounds_per_step") + 1, median_of(two, "bytes_per_step")
    rate, latency, repeated = (float(probed[key]) for key in ("MB_per_second", "latency_ms", "repeated_seconds"))
    divided = 2 * (seconds - repeated - counted / 2**20 / rate)
    lines = []
    for ranks in (4, 16, 64):
        sent = bytes_per_step(ranks, sweeps) / 2**20
        for name, network in (("as measured here", rate), ("1 Gbit/s", 119.0)):
            exchanges = messages(ranks, sweeps) * (ranks - 1) * latency / 1000
            total = divided / ranks + repeated + sent / network + exchanges
            lines.append(f"| {ranks} | {name} | {sent:.1f} | {divided / ranks:.2f} | {total:.2f} |")
    return f"""
A step has {sweeps:.1f} sweeps over all pairs. The exchange runs at {rate:.0f} MB/s with {latency:.2f} ms per message
(loopback), and every rank repeats {repeated:.2f} s of work per step.

| ranks | network | MB sent per step | seconds of divided work | seconds per step (estimate) |
|---|---|---|---|---|
""" + "\n".join(lines)


BEGIN, END = "<!-- begin: scripts/ranks_page.py -->", "<!-- end -->"

if __name__ == "__main__":
    if sys.argv[1:2] == ["rank"]:
        sys.exit(rank(sys.argv[2], sys.argv[3:]))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", choices=("run", "probe", "page"), help="one of the three actions described above")
    parser.add_argument("--busy", action="store_true", help="start even if other processes use the machine")
    parser.add_argument("--repeats", type=int, default=3, help="number of runs of each kind (default: 3)")
    parsed = parser.parse_args()
    if parsed.action == "run":
        run(parsed.busy, parsed.repeats)
    elif parsed.action == "probe":
        probe(parsed.busy)
    else:
        PAGE.write_text(page())
