"""How time and memory grow with the length, and what a window saves: one rank, one head, D = 64.

    python benchmarks/bench_growth.py --json benchmarks/results/growth.json

Causal attention of float32 on all cores, each length in a process of its own: peak memory is its VmHWM above
that of the process before it made its arrays. FLOPs are those that the kernels have counted.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import environment
import machine
import numpy as np

import ringcore as rc

D = 64
LENGTHS = [4_096, 16_384, 65_536, 262_144]
WINDOW = 1_024


def peak() -> int:
    """Bytes: the most that this process has had in memory."""
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return 1024 * int(status["VmHWM"].split()[0])


def measured(S: int, window: int | None) -> dict[str, Any]:
    """In this process."""
    rng = np.random.default_rng(0)
    few = rng.standard_normal((1, 2_048, D), dtype=np.float32)
    rc.attention(few, few, few, mask=rc.causal())  # everything is loaded, all threads run
    idle = peak()
    q, k, v = (rng.standard_normal((1, S, D), dtype=np.float32) for _ in range(3))
    mask = rc.causal() if window is None else rc.window(window - 1, 0)
    seconds = []
    for _ in range(1 if S > 100_000 and window is None else 5):
        meter = rc.Meter()
        begin = time.perf_counter()
        rc.attention(q, k, v, mask=mask, meter=meter)
        seconds.append(time.perf_counter() - begin)
    return {
        "length": S, "window": window, "seconds": float(np.median(seconds)), "bytes": peak() - idle,
        "scores": meter.scores, "visible": _visible(S, window),
    }  # fmt: skip


def _visible(S: int, window: int | None) -> int:
    """Pairs of a query and a key that it sees."""
    w = S if window is None else min(window, S)
    return w * (w + 1) // 2 + (S - w) * w


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--one", nargs=2, type=int, help=argparse.SUPPRESS)
    parser.add_argument("--lengths", nargs="+", type=int, default=LENGTHS)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    if args.one:
        S, window = args.one
        print(json.dumps(measured(S, window or None)))
        return
    rows = []
    print("| length | window | seconds | s / scores, ns | MiB | bytes / token |")
    print("|---|---|---|---|---|---|")
    for S, window in [*((S, 0) for S in args.lengths), (args.lengths[-1], WINDOW)]:
        command = [sys.executable, __file__, "--one", str(S), str(window)]
        row = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
        rows.append(row)
        each, per_token = 1e9 * row["seconds"] / row["scores"], row["bytes"] / S
        print(
            f"| {S:,} | {window or ''} | {row['seconds']:.4g} | {each:.2f} | {row['bytes'] / 2**20:.0f} "
            f"| {per_token:.0f} |",
            flush=True,
        )
    whole, narrow = rows[-2:]
    share, taken = narrow["scores"] / whole["scores"], narrow["seconds"] / whole["seconds"]
    print(
        f"\nA window of {WINDOW:,} at {whole['length']:,} takes {taken:.5f} of causal's time; its tiles are "
        f"{share:.5f} of causal's: {taken / share:.2f} x. Of visible pairs: "
        f"{taken / (narrow['visible'] / whole['visible']):.2f} x."
    )
    if args.json:
        args.json.write_text(
            json.dumps({"machine": machine.facts(environment.cores()), "rows": rows}, indent=1) + "\n"
        )


if __name__ == "__main__":
    main()
