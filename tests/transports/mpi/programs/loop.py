"""The same calls again and again: python loop.py WHAT TIMES. What the process holds is noted on the way."""

from __future__ import annotations

import gc
import os
import sys
import tempfile
import threading
from pathlib import Path

import numpy as np
from notes import MPI, RANK, note, note_shared_memory

import ringcore as rc

WHAT, TIMES = sys.argv[1], int(sys.argv[2])
COMM = MPI.COMM_WORLD


def holds() -> dict[str, int]:
    """What grows if something is kept: bytes, Python's blocks, handles, threads, files."""
    gc.collect()
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    mapped = {
        line.split(maxsplit=5)[5] for line in Path("/proc/self/maps").read_text().splitlines() if "/" in line
    }
    return {
        "rss": 1024 * int(status["VmRSS"].split()[0]),
        "blocks": sys.getallocatedblocks(),
        "handles": len([*Path("/proc/self/fd").iterdir()]),
        "threads": threading.active_count(),
        "mapped": len(mapped),
        "files": sum(len(files) for _, _, files in os.walk(tempfile.gettempdir())),
    }


def attention() -> None:
    """Forward, backward, a sum, on a ring that is made anew each time."""
    ring = rc.Ring(COMM, timeout=60.0)
    x = np.ones((8, 4))
    out, pullback = rc.attention_vjp(x, x, x, ring=ring, mask=rc.causal())
    assert np.allclose(out, 1)
    assert np.isfinite(pullback(out)[2]).all()
    assert ring.allreduce(np.array(1.0)) == ring.size


def shared() -> None:
    """The same, with blocks that others read where they lie."""
    rc.Ring(COMM, timeout=60.0).transport.shares_from = 0
    attention()


def split() -> None:
    """A part of the ring, used and given back."""
    with rc.Ring(COMM, timeout=60.0).split(color=0, key=-RANK) as part:
        assert part.allreduce(np.array(1.0)) == part.size


def duplicate() -> None:
    """A communicator of the user's, with a ring of its own, freed."""
    comm = COMM.Dup()
    ring = rc.Ring(comm, timeout=60.0)
    assert ring.allreduce(np.array(1.0)) == ring.size
    comm.Free()


def letters() -> None:
    """Questions and answers, as while a rank waits for a slow one, but without the waiting."""
    transport = rc.Ring(COMM, timeout=60.0).transport
    transport._office._put({"kind": "ask", "at": 0.0}, 1 - RANK)
    COMM.Barrier()
    transport.listen()
    COMM.Barrier()
    transport.listen()


note_shared_memory()
for time in range(TIMES):
    work = {
        "attention": attention,
        "shared": shared,
        "split": split,
        "duplicate": duplicate,
        "letters": letters,
    }
    work[WHAT]()
    if time + 1 in (TIMES // 5, TIMES):
        note("holds", **holds())
note("all done")
