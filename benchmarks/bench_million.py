"""One million tokens on one machine: causal attention, one head, D = 64, float32, on all cores; run once.

    python benchmarks/bench_million.py --json benchmarks/results/million.json

64 rows, the first and the last among them, are held against a dense float64 computation.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import environment
import machine
import numpy as np
from bench_growth import D, peak

import ringcore as rc

ROWS = 64


def dense(q: np.ndarray, k: np.ndarray, v: np.ndarray, row: int) -> np.ndarray:
    """One row of causal attention in float64."""
    s = k[: row + 1].astype(np.float64) @ q[row].astype(np.float64) / np.sqrt(D)
    w = np.exp(s - s.max())
    return w @ v[: row + 1].astype(np.float64) / w.sum()


def main() -> None:
    """Print one line a fact."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--length", type=int, default=1_000_000)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    S = args.length
    rng = np.random.default_rng(0)
    few = rng.standard_normal((1, 2_048, D), dtype=np.float32)
    rc.attention(few, few, few, mask=rc.causal())  # everything is loaded, all threads run
    idle = peak()
    q, k, v = (rng.standard_normal((1, S, D), dtype=np.float32) for _ in range(3))
    meter = rc.Meter()
    begin = time.perf_counter()
    out = rc.attention(q, k, v, mask=rc.causal(), meter=meter)
    seconds = time.perf_counter() - begin
    most = peak() - idle
    rows = np.unique(np.concatenate([[0, S - 1], rng.integers(0, S, ROWS - 2)]))
    error = max(float(np.abs(out[0, row] - dense(q[0], k[0], v[0], row)).max()) for row in rows)
    found = {
        "length": S, "dim": D, "heads": 1, "seconds": seconds, "bytes": most, "flops": meter.flops,
        "useful_flops": 2 * S * (S + 1) * D, "rows_checked": len(rows), "largest_error": error,
    }  # fmt: skip
    for name, value in found.items():
        print(f"{name}: {value:,}")
    if args.json:
        about = {"machine": machine.facts(environment.cores()), **found}
        args.json.write_text(json.dumps(about, indent=1) + "\n")


if __name__ == "__main__":
    main()
