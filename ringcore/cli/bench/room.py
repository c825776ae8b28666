"""Whether a row fits into memory: told before it is tried, as the system would end us without a word."""

from __future__ import annotations

import json
from collections.abc import Sequence

import numpy as np

import ringcore as rc
from ringcore.cli.bench.rows import Row
from ringcore.cli.errors import InputError
from ringcore.cli.genome.memory import free, machine, spoken
from ringcore.dtypes import accumulation_name

_BYTES = {"float64": 8, "float32": 4, "float16": 2, "bfloat16": 2}


def needed(row: Row, tokens: int) -> int:
    """Bytes that a rank with so many tokens holds at most, tiles not counted."""
    item, wide = _BYTES[row.dtype], _BYTES[accumulation_name(row.dtype)]
    H, G = row.heads, row.kv_heads
    inputs, travelling = item * (H + 2 * G), 4 * item * 2 * G  # sent and received, now and in the replay
    results = H * (wide + item)
    if row.backward:
        inputs += item * H
        results += (H + 2 * G) * (wide + item)
        travelling += 4 * wide * 2 * G
    return tokens * row.dim * (inputs + travelling + results)


def check(rows: Sequence[Row], ring: rc.Ring, ranks: int, scaling: bool) -> None:
    """Refuse the first row that does not fit. Collective; the same on every rank.

    Parameters
    ----------
    rows : sequence of Row
    ring : Ring
        All processes.
    ranks : int
        Threads of each, where there is one process only; else processes.
    scaling : bool
        Whether rank 0 solves the same problem alone, too.

    Raises
    ------
    InputError
        If a machine has less memory than its ranks need.
    """
    name, key = machine()
    notes = ring.transport.allgather_bytes(json.dumps([name, key, free()]).encode(), ring.timeout)
    told = [json.loads(note) for note in notes]
    for row in rows:
        counts = row.layout(ranks).counts()
        sizes = np.asarray([needed(row, int(n)) if n else 0 for n in counts.tolist()])
        sizes[0] += needed(row, row.length) if scaling else 0
        if ring.size == 1:
            sizes = np.asarray([sizes.sum()])
        for where in dict.fromkeys((x[0], x[1]) for x in told):
            there = [rank for rank, x in enumerate(told) if (x[0], x[1]) == where]
            room, total = told[there[0]][2], int(sizes[there].sum())
            if room is not None and total > room:
                raise InputError(
                    f"{row} needs {spoken(total)} on {where[0]}. It has {spoken(room)} free. Take a smaller "
                    "--length, fewer --heads, or more machines."
                )
