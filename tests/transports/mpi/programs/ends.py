"""A rank ends, or breaks off, in its own way: python ends.py HOW. What it raises is caught by nobody."""

from __future__ import annotations

import os
import signal
import sys
import time
from dataclasses import dataclass
from typing import Any

import numpy as np
from notes import MPI, RANK, SIZE, note, note_shared_memory, noted

import ringcore as rc
from ringcore.block import GenericBackend

HOW = sys.argv[1]
CULPRIT = 1


@dataclass(frozen=True)
class Breaking(GenericBackend):
    """Cannot do its work on one rank."""

    def attend(self, *args: Any) -> Any:
        if RANK == CULPRIT:
            note("fault")
            if HOW == "interrupted":
                os.kill(os.getpid(), signal.SIGINT)
            else:
                raise MemoryError("no room")
        return super().attend(*args)


def some_make_a_ring() -> None:
    """The others are there, but do something else."""
    if RANK == CULPRIT:
        note("fault")
        time.sleep(60)
    rc.Ring(MPI.COMM_WORLD, timeout=2.0)


def main() -> None:
    note_shared_memory()
    if HOW == "some make a ring":
        some_make_a_ring()
    ring = rc.Ring(MPI.COMM_WORLD, timeout=2.0 if HOW == "returns" else 60.0)
    ring.transport.shares_from = None
    x = np.ones((64, 2**14 if HOW == "fails with much under way" else 16))
    ring.allreduce(np.ones(SIZE))
    if HOW in ("raises", "returns") and RANK == CULPRIT:
        note("fault")
        if HOW == "raises":
            raise KeyError("no such chromosome")
        return
    rc.attention(x, x, x, ring=ring, backend=Breaking(), side="kv", way="ring")
    ring.allreduce(np.ones(SIZE))


with noted():
    main()
