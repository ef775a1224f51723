#!/usr/bin/env python3
"""Measure one cloud over two ranks against one process, and write docs/ranks.md from the figures.

python scripts/ranks_page.py run one       one process with two threads; adds a row to outputs/ranks/measured.csv
python scripts/ranks_page.py run two       two ranks with one thread each; run both in turn, on an idle machine
python scripts/ranks_page.py probe         the work that every rank repeats, and the rate of an exchange
python scripts/ranks_page.py page          write docs/ranks.md
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import re
import resource
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
"""WDBC: training rows; a particle has p = N_X + 2 coordinates."""


def run(kind: str) -> None:
    """Train three steps of WDBC from cloud_0 with N = 100000 and add a row to the table."""
    # Timings of a machine that other processes use are kept apart; peak memory and bytes do not depend on them.
    idle = os.getloadavg()[0] < 1
    with tempfile.TemporaryDirectory() as folder:
        out, train = Path(folder) / "run", ["train", "dataset=wdbc", f"N={N}", f"steps={STEPS}", "films=false"]
        own = [sys.executable, str(Path(__file__)), "rank", f"{folder}/peak", *train, f"hydra.run.dir={out}"]
        launch = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--no-python"]
        threads = "2" if kind == "one" else "1"
        command = own if kind == "one" else launch + own
        subprocess.run(command, check=True, env=os.environ | {"OMP_NUM_THREADS": threads}, stdout=subprocess.DEVNULL)
        status = json.loads((out / "status.json").read_text())
        sent = re.search(r"sent (\d+) bytes in (\d+) steps", (out / "train.log").read_text())
        with (out / "metrics.csv").open() as file:
            rounds = [int(row["sinkhorn_rounds"]) for row in csv.DictReader(file) if row["sinkhorn_rounds"]]
        peaks = sorted(float(path.read_text()) for path in Path(folder).glob("peak.*"))
        add_row(
            MEASURED,
            kind=kind,
            idle="yes" if idle else "no",
            seconds=status["seconds"],
            largest_peak_MB=round(peaks[-1]),
            other_peak_MB=round(peaks[0]) if len(peaks) > 1 else "",
            bytes_per_step=int(sent[1]) // int(sent[2]) if sent else "",
            rounds_per_step=sum(rounds) / len(rounds),
        )


def rank(peak: str, args: list[str]) -> int:
    """Run one process of the command and note its peak memory in MB."""
    code = subprocess.call([sys.executable, "-m", "proxlearn", *args])
    number = os.environ.get("RANK", "0")
    Path(f"{peak}.{number}").write_text(str(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024))
    return code


def probe() -> None:
    """Measure what every rank repeats in a step, the base memory of a process, and the rate of an exchange."""
    import numpy as np
    import torch.multiprocessing as multiprocessing

    from proxlearn.core.fused.tile_order import GROUP, LEAF, Boxes, tile_order

    base = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    cloud = np.random.default_rng(0).uniform(-1, 1, (N, P)).astype(np.float32)
    seconds = []
    for _ in range(4):
        start = time.perf_counter()
        order = tile_order(cloud)
        Boxes.around(cloud[order], GROUP), Boxes.around(cloud[order], LEAF)
        seconds.append(time.perf_counter() - start)
    context = multiprocessing.get_context("spawn")
    rates = context.Queue()
    processes = [context.Process(target=exchange_rate, args=(number, rates)) for number in range(2)]
    for process in processes:
        process.start()
    rate, latency = rates.get()
    for process in processes:
        process.join()
    add_row(
        PROBED, repeated_seconds=round(min(seconds[1:]), 4), base_MB=round(base), MB_per_second=rate, latency_ms=latency
    )


def exchange_rate(number: int, rates: object) -> None:
    import numpy as np

    from proxlearn.distributed.launch import Launch
    from proxlearn.distributed.world import World

    world = World(Launch(number, 2, "127.0.0.1", 29_611), 60)

    def seconds(size: int, times: int) -> float:
        message = np.zeros(size)
        world.all_gather(message)
        start = time.perf_counter()
        for _ in range(times):
            world.all_gather(message)
        return (time.perf_counter() - start) / times

    large, small = seconds(N, 50), seconds(1, 200)
    if number == 0:
        rates.put((round(8 * N / 2**20 / (large - small)), round(1000 * small, 3)))  # type: ignore[attr-defined]


def add_row(path: Path, **values: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    is_new = not path.exists()
    with path.open("a", newline="") as file:
        writer = csv.DictWriter(file, list(values), lineterminator="\n")
        if is_new:
            writer.writeheader()
        writer.writerow(values)


def bytes_per_step(ranks: int, sweeps: float, itemsize: int = 4) -> float:
    """Return the bytes that one of 2, 4, 8 ... ranks sends in a step; docs/ranks.md derives the formula."""
    share = (ranks - 1) / ranks
    sums = 2 * ROWS * itemsize * (ranks - 1)
    locations = N * (P + 1) * itemsize * share
    rounds = sweeps * (8 * N + 3 * 8 * N) * share + 8 * N * share
    return sums + locations + rounds


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open() as file:
        return list(csv.DictReader(file))


def page() -> str:
    rows, probed = rows_of(MEASURED), rows_of(PROBED)[-1]
    by_kind = {kind: [row for row in rows if row["kind"] == kind] for kind in ("one", "two")}
    seconds = {
        kind: median(float(row["seconds"]) / STEPS for row in found if row["idle"] == "yes")
        for kind, found in by_kind.items()
    }
    peak = {kind: float(found[-1]["largest_peak_MB"]) for kind, found in by_kind.items()}
    other = float(by_kind["two"][-1]["other_peak_MB"])
    counted = float(by_kind["two"][-1]["bytes_per_step"])
    number = sum(row["idle"] == "yes" for row in by_kind["two"])
    early = {kind: found[0]["largest_peak_MB"] for kind, found in by_kind.items()}
    busy = {kind: float(found[-1]["seconds"]) / STEPS for kind, found in by_kind.items()}
    rounds = float(by_kind["two"][0]["rounds_per_step"])
    sweeps, base = rounds + 1, float(probed["base_MB"])
    rate, latency, repeated = (float(probed[key]) for key in ("MB_per_second", "latency_ms", "repeated_seconds"))
    divided = 2 * (seconds["two"] - repeated - counted / 2**20 / rate)
    formula, own = bytes_per_step(2, sweeps), peak["one"] - base
    net = [(value - base, (value - base) / own) for value in (peak["two"], other)]
    lines = []
    for ranks in (4, 16, 64):
        sent = bytes_per_step(ranks, sweeps) / 2**20
        for name, network in (("as measured here", rate), ("1 Gbit/s", 119.0)):
            exchanges = (2 * sweeps + 4) * (ranks - 1) * latency / 1000
            total = divided / ranks + repeated + sent / network + exchanges
            lines.append(f"| {ranks} | {name} | {sent:.1f} | {divided / ranks:.2f} | {total:.2f} |")
    text = (ROOT / "docs" / "ranks.md").read_text() if PAGE.exists() else BEGIN + END
    table = f"""
| WDBC, N = {N}, three steps from cloud_0 | one process, two threads | two ranks, one thread each |
|---|---|---|
| seconds per step | {seconds["one"]:.1f} | {seconds["two"]:.1f} ({seconds["two"] / seconds["one"]:.2f} times) |
| peak memory, MB | {peak["one"]:.0f} | {peak["two"]:.0f} (rank 0), {other:.0f} ({peak["two"] / peak["one"]:.2f}, \
{other / peak["one"]:.2f} times) |
| peak memory without the {base:.0f} MB of the libraries | {own:.0f} | {net[0][0]:.0f}, {net[1][0]:.0f} \
({net[0][1]:.2f}, {net[1][1]:.2f} times) |
| MB sent per rank and step | 0 | {counted / 2**20:.2f} counted, {formula / 2**20:.2f} by the formula |

The seconds are of {number} run of each kind, one after the other, while other measurements waited, with an earlier
state of the program (its peaks were {early["one"]} and {early["two"]} MB). Memory and bytes are of the newest runs,
which shared the machine with other processes and took {busy["one"]:.1f} and {busy["two"]:.1f} s per step. \
A step has {sweeps:.1f} sweeps over all pairs. The exchange runs at
{rate:.0f} MB/s with {latency:.2f} ms per message (loopback), and every rank repeats {repeated:.2f} s of work per step.

| ranks | network | MB sent per step | seconds of divided work | seconds per step, predicted |
|---|---|---|---|---|
""" + "\n".join(lines)
    return re.sub(f"{BEGIN}.*{END}", lambda _: f"{BEGIN}{table}\n{END}", text, flags=re.DOTALL)


BEGIN, END = "<!-- begin: scripts/ranks_page.py -->", "<!-- end -->"

if __name__ == "__main__":
    if sys.argv[1:2] == ["rank"]:
        sys.exit(rank(sys.argv[2], sys.argv[3:]))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", choices=("run", "probe", "page"))
    parser.add_argument("kind", nargs="?", choices=("one", "two"))
    parsed = parser.parse_args()
    if parsed.action == "run":
        run(parsed.kind or parser.error("say which: one or two"))
    elif parsed.action == "probe":
        probe()
    else:
        PAGE.write_text(page())
