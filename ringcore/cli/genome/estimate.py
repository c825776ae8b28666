"""How long the attention will take: a small piece of it is timed."""

from __future__ import annotations

import os
import time

import numpy as np

import ringcore as rc
from ringcore.cli.genome import attend, encode
from ringcore.cli.genome.settings import Settings

_QUERIES_PER_CORE, _KEYS, _RANKS = 512, 32768, 16


def scores_per_second(codes: encode.Codes, settings: Settings) -> float:
    """Query-key pairs a second of attention on this machine, with this genome's shapes and dtype.

    Two calls with enough queries to keep all cores busy for some hundredths of a second; the first one
    only warms up.
    """
    strands = encode.both_strands(codes)
    n = min(_QUERIES_PER_CORE * (os.cpu_count() or 1), codes.size + 1)
    m = min(_KEYS, strands.size)
    q = np.float32(settings.sharpness) * encode.contexts(codes, 0, n, settings.context)
    k, v = encode.keys(strands, 0, m, settings.context), encode.values(strands, 0, m)
    for _ in range(2):
        begin = time.perf_counter()
        rc.attention(q, k, v, scale=1.0)
        seconds = time.perf_counter() - begin
    return n * m / max(seconds, 1e-9)


def overhead(ranks: int, settings: Settings) -> float:
    """Seconds that one record takes however short it is: each rank meets the block of each other one.

    Of many ranks only some are timed; the work grows with their square.
    """
    timed = min(ranks, _RANKS)
    codes = np.zeros(timed, np.uint8)
    begin = time.perf_counter()
    rc.run_ranks(timed, attend.genome_rank, codes, settings, rc.Meter())
    return (time.perf_counter() - begin) * (ranks / timed) ** 2


def spoken(seconds: float) -> str:
    """A duration as people say it.

    Examples
    --------
    >>> spoken(0.4), spoken(72), spoken(5400), spoken(200_000)
    ('under 1 s', '1 min 12 s', '1 h 30 min', '55 h 33 min')
    """
    if seconds < 1:
        return "under 1 s"
    if seconds < 60:
        return f"{seconds:.0f} s"
    if seconds < 3600:
        return f"{int(seconds // 60)} min {int(seconds % 60)} s"
    return f"{int(seconds // 3600):,} h {int(seconds % 3600 // 60)} min"
