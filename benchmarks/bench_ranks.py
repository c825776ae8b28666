"""What ranks cost, and what a layout gains: two ranks with one core each, beside one rank with both.

    mpirun -n 2 python benchmarks/bench_ranks.py --json benchmarks/results/ranks.json

Everything in turn, several rounds; a ratio is the median of those of neighbours, the time of a call that of
its slowest rank. A rank that has nothing to do sleeps.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import machine
import numpy as np
from gemm import Gemm
from mpi4py import MPI

import ringcore as rc

H, D = 4, 128
COMM = MPI.COMM_WORLD
POLL_SECONDS = 0.0005


def asleep() -> None:
    """A barrier that leaves the core to others."""
    request = COMM.Ibarrier()
    while not request.Test():
        time.sleep(POLL_SECONDS)


def timed(work: Callable[[], object] | None) -> float:
    """Seconds of the slowest rank that has work."""
    asleep()
    begin = time.perf_counter()
    if work is not None:
        work()
    seconds = time.perf_counter() - begin if work is not None else 0.0
    asleep()
    return COMM.allreduce(seconds, MPI.MAX)


def works(S: int) -> dict[str, Callable[[], object] | None]:
    """What this rank does in each case; None: it sleeps."""
    ring = rc.Ring(COMM, timeout=600)
    rng = np.random.default_rng(0)
    full = [rng.standard_normal((H, S, D), dtype=np.float32) for _ in range(4)]

    def forward(layout: rc.Layout, mask: rc.Mask | None) -> Callable[[], object]:
        q, k, v = (layout.shard(x, ring.rank) for x in full[:3])
        return lambda: rc.attention(q, k, v, ring=ring, layout=layout, mask=mask)

    def both(layout: rc.Layout) -> Callable[[], object]:
        q, k, v, dout = (layout.shard(x, ring.rank) for x in full)
        return lambda: rc.attention_vjp(q, k, v, ring=ring, layout=layout)[1](dout)

    contiguous = rc.Layout.contiguous(length=S, ranks=2)
    zigzag = rc.Layout.zigzag(length=S, ranks=2)
    q, k, v, dout = full
    first = COMM.rank == 0
    return {
        "full, 2 ranks": forward(contiguous, None),
        "full, 1 rank": (lambda: rc.attention(q, k, v)) if first else None,
        "causal, contiguous": forward(contiguous, rc.causal()),
        "causal, zigzag": forward(zigzag, rc.causal()),
        "forward+backward, 2 ranks": both(contiguous),
        "forward+backward, 1 rank": (lambda: rc.attention_vjp(q, k, v)[1](dout)) if first else None,
    }


def main() -> None:
    """Print a table on rank 0."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--length", type=int, default=16_384)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    if COMM.size != 2:
        raise SystemExit(f"must run on 2 ranks: mpirun -n 2. Got {COMM.size}.")
    cases = works(args.length)
    gemm = Gemm(2) if COMM.rank == 0 else None
    samples: dict[str, list[float]] = {name: [] for name in [*cases, "gemm"]}
    for round_ in range(args.rounds + 1):
        samples["gemm"].append(timed(None if gemm is None else gemm.seconds))
        for name, work in cases.items():
            samples[name].append(timed(work))
        if COMM.rank == 0:
            print(f"round {round_} of {args.rounds}", flush=True)
    if gemm is None:
        return
    kept = {name: np.array(times[1:]) for name, times in samples.items()}  # the first are warm-up
    pairs = {
        "1 rank x 2 threads / 2 ranks x 1 core, forward": ("full, 1 rank", "full, 2 ranks"),
        "1 rank x 2 threads / 2 ranks x 1 core, forward+backward": (
            "forward+backward, 1 rank", "forward+backward, 2 ranks",
        ),
        "causal on 2 ranks, contiguous / zigzag": ("causal, contiguous", "causal, zigzag"),
    }  # fmt: skip
    ratios = {name: float(np.median(kept[a] / kept[b])) for name, (a, b) in pairs.items()}
    flops = 4 * H * args.length**2 * D
    work = {"full, 1 rank": 1, "full, 2 ranks": 1, "causal, zigzag": 0.5, "forward+backward, 1 rank": 3.5}
    shares = {
        name: float(np.median(part * flops / kept[name] / (gemm.flops / kept["gemm"])))
        for name, part in work.items()
    }
    for title, found in (("ratio of times", ratios), ("share of GEMM", shares)):
        print(f"\n| {title} | |\n|---|---|")
        for name, value in found.items():
            print(f"| {name} | {value:.3f} |")
    if args.json:
        about: dict[str, Any] = {"machine": machine.facts(2), "length": args.length, "heads": H, "dim": D}
        about |= {"ratios": ratios, "shares": shares, "seconds": {n: t.tolist() for n, t in kept.items()}}
        args.json.write_text(json.dumps(about, indent=1) + "\n")


if __name__ == "__main__":
    main()
