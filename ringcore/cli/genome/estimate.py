"""How long the attention will take: a small piece of it is timed."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

import numpy as np

import ringcore as rc
from ringcore.cli.genome import encode
from ringcore.cli.genome.settings import Settings
from ringcore.cores import cores

if TYPE_CHECKING:
    from ringcore.cli.genome.ranks import Ranks

_QUERIES_PER_CORE, _KEYS, _RANKS = 512, 32768, 16


def scores_per_second(bases: int, settings: Settings) -> float:
    """Query-key pairs a second of attention on this process's cores, with the shapes and dtype of a genome.

    Two calls with enough queries to keep all cores busy for some hundredths of a second; the first one
    only warms up. The bases are random: how long it takes does not depend on them.
    """
    w, keys = settings.context, 2 * (bases + 1)
    n = min(_QUERIES_PER_CORE * (cores.get() or os.cpu_count() or 1), bases + 1)
    m = min(_KEYS, keys)
    codes = np.random.default_rng(0).integers(0, 4, max(n, m) + w).astype(np.uint8)
    q = np.float32(settings.sharpness) * encode.contexts(codes[: n + w], w)
    k, v = encode.contexts(codes[: m + w], w), encode.values(codes[w : m + w], 0, keys)
    for _ in range(2):
        begin = time.perf_counter()
        rc.attention(q, k, v, scale=1.0)
        seconds = time.perf_counter() - begin
    return n * m / max(seconds, 1e-9)


def overhead(ranks: Ranks, settings: Settings) -> float:
    """Seconds that one record takes however short it is: each rank meets the block of each other one.

    Of many ranks only some are timed, where that can be done; the work grows with their square.
    """
    timed = ranks.at_most(_RANKS)
    codes = np.zeros(timed.size, np.uint8)
    begin = time.perf_counter()
    timed.echo(codes, settings, rc.Meter())
    return (time.perf_counter() - begin) * (ranks.size / timed.size) ** 2


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
