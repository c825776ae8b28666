"""What follows from what all ranks have measured: medians, and of ratios those of neighbours in time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from ringcore.cli.bench.rows import Row


@dataclass
class Taken:
    """What one rank has measured of a row; times in seconds and of one call, one for each loop.

    Attributes
    ----------
    cores : int
        That its process has; 0 on a rank that shares the process of rank 0.
    calls : int
        In a loop.
    seconds : list of float
    blocked, showing : list of float
        Held up by messages; by showing blocks to the ranks of this node. See `watched.Watched`.
    alone : list of float
        The same exchanges with nothing to compute.
    gemm : list of float
        Of the products before each loop, and after the last.
    one_rank : list of float
        The same problem on rank 0 alone; empty unless asked for, and elsewhere.
    gemm_flops : int
        Of this process's products.
    messages, bytes : int
        Sent in one call.
    shown : int
        Bytes of blocks that other ranks may read where they lie.
    flops : int
        Computed in one call, as kernels count them: of whole tiles.
    peak : int
        Bytes of its process, beyond its inputs.
    peak_by : str
    one_rank_cores : int
    """

    cores: int
    calls: int = 1
    seconds: list[float] = field(default_factory=list)
    blocked: list[float] = field(default_factory=list)
    showing: list[float] = field(default_factory=list)
    alone: list[float] = field(default_factory=list)
    gemm: list[float] = field(default_factory=list)
    one_rank: list[float] = field(default_factory=list)
    gemm_flops: int = 0
    messages: int = 0
    bytes: int = 0
    shown: int = 0
    flops: int = 0
    peak: int = 0
    peak_by: str = ""
    one_rank_cores: int = 0


@dataclass(frozen=True)
class Figures:
    """A row of the report.

    Attributes
    ----------
    seconds : float
        One call, on the slowest rank.
    gflops : float
        Useful operations a second, in 10^9, of all ranks together.
    gemm_gflops, share : float
        The rate of matrix products on all ranks' cores, and the part of it that ``gflops`` is.
    useful : float or None
        Useful operations over those that kernels computed. None where they do not count.
    messages, bytes : int
        Of one call, all ranks together.
    shared_bytes : int
        Not sent, but shown to the ranks of a node.
    held_up : float
        Seconds of one call for which communication held up the rank that it held up longest: posting
        messages, waiting for them, showing blocks.
    overlap : float or None
        1 - (time held up by messages) / (time of the same messages alone); None where none is sent.
    peak_bytes : int
        Of the process that needed most, beyond its inputs.
    peak_by : str
        What told it.
    speedup, efficiency : float or None
        One rank's time over this one, and that by how many times more cores these are; None unless asked for.
    cores, loops, calls : int
    """

    seconds: float
    gflops: float
    gemm_gflops: float
    share: float
    useful: float | None
    messages: int
    bytes: int
    shared_bytes: int
    held_up: float
    overlap: float | None
    peak_bytes: int
    peak_by: str
    speedup: float | None
    efficiency: float | None
    cores: int
    loops: int
    calls: int
    samples: dict[str, Any]


def figures(row: Row, ranks: Sequence[Taken]) -> Figures:
    """Of one row, from what its ranks have measured."""
    loops = range(len(ranks[0].seconds))
    seconds = [max(t.seconds[i] for t in ranks) for i in loops]
    held_up = [max(t.blocked[i] + t.showing[i] for t in ranks) for i in loops]
    gemm = [max(times) for times in zip(*(t.gemm for t in ranks if t.gemm), strict=True)]
    gemm_flops = sum(t.gemm_flops for t in ranks)
    beside = [(gemm[i] + gemm[i + 1]) / 2 for i in loops]
    nbytes, computed, cores = (sum(getattr(t, name) for t in ranks) for name in ("bytes", "flops", "cores"))
    first = ranks[0]
    speedup = median(a / b for a, b in zip(first.one_rank, seconds, strict=True)) if first.one_rank else None
    most = max(ranks, key=lambda t: t.peak)
    return Figures(
        seconds=median(seconds),
        gflops=row.flops / median(seconds) / 1e9,
        gemm_gflops=gemm_flops / median(gemm) / 1e9,
        share=median(row.flops / s / (gemm_flops / g) for s, g in zip(seconds, beside, strict=True)),
        useful=row.flops / computed if computed else None,
        messages=sum(t.messages for t in ranks),
        bytes=nbytes,
        shared_bytes=sum(t.shown for t in ranks),
        held_up=median(held_up),
        overlap=median(_overlap(ranks, i) for i in loops) if nbytes else None,
        peak_bytes=most.peak,
        peak_by=most.peak_by,
        speedup=speedup,
        efficiency=None if speedup is None else speedup * first.one_rank_cores / cores,
        cores=cores,
        loops=len(loops),
        calls=first.calls,
        samples={
            "seconds": seconds,
            "gemm_seconds": gemm,
            "blocked_seconds": [t.blocked for t in ranks],
            "showing_seconds": [t.showing for t in ranks],
            "alone_seconds": [t.alone for t in ranks],
            "one_rank_seconds": first.one_rank,
        },
    )


def _overlap(ranks: Sequence[Taken], i: int) -> float:
    """Of one loop. All ranks together: one that waits for another's computing is held up, too."""
    alone = sum(t.alone[i] for t in ranks)
    return 1 - sum(t.blocked[i] for t in ranks) / alone if alone > 0 else 0.0
