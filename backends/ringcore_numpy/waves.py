"""Sharing out the work of a backward step without locks.

The tiles of a key head are dealt out to tasks in waves: in a wave a task owns the dK and dV rows of its
key tiles and the dQ rows of its query tiles, and no two tasks share any. With n tasks a wave, n waves
meet all pairs: in wave w task t has query tiles t + w, t + w + n, .. and key tiles t, t + n, ... So one
head can keep many cores busy without a buffer of its own for each task, and the bits depend neither on
the run nor on the number of cores.
"""

from __future__ import annotations

_TASKS = 32  # in a wave: busy for that many cores, whatever this machine has


def waves_of(q_tiles: int, k_tiles: int, heads: int) -> int:
    """Tasks a wave for each key head, and so waves; never more than there are tiles."""
    return max(1, min(q_tiles, k_tiles, -(-_TASKS // max(1, heads))))
