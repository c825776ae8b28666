"""How long the attention will take: a small piece of it is timed."""

from __future__ import annotations

import time

import numpy as np

import ringcore as rc
from ringcore.cli.genome import encode
from ringcore.cli.genome.settings import Settings

_QUERIES, _KEYS = 1024, 32768


def scores_per_second(codes: encode.Codes, settings: Settings) -> float:
    """Query-key pairs a second of attention on this machine, with this genome's shapes and dtype.

    Two small calls of at most 1,024 x 32,768 pairs; the first one only warms up.
    """
    strands = encode.both_strands(codes)
    n, m = min(_QUERIES, codes.size + 1), min(_KEYS, strands.size)
    q = np.float32(settings.sharpness) * encode.contexts(codes, 0, n, settings.context)
    k, v = encode.keys(strands, 0, m, settings.context), encode.values(strands, 0, m)
    for _ in range(2):
        begin = time.perf_counter()
        rc.attention(q, k, v, scale=1.0)
        seconds = time.perf_counter() - begin
    return n * m / max(seconds, 1e-9)


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
    big, small, unit = (seconds, 60, ("min", "s")) if seconds < 3600 else (seconds / 60, 60, ("h", "min"))
    return f"{int(big // small):,} {unit[0]} {int(big % small)} {unit[1]}"
