"""What a job survives: python mishaps.py. Each rank notes what it got, then all go on."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import ringcore_mpi.exchange
from notes import MPI, RANK, note, noted
from ringcore_mpi.pieces import pieces

import ringcore as rc
from ringcore.block import GenericBackend


@dataclass(frozen=True)
class Odd(GenericBackend):
    """Does something else first, on one rank, in its first kernel."""

    rank: int = 0
    what: Any = None
    done: Any = None

    def attend(self, *args: Any) -> Any:
        if self.rank == RANK and not self.done:
            self.done.append(True)
            self.what()
        return super().attend(*args)


def attend(ring: rc.Ring, rank: int, what: Any, rows: int = 128) -> bool:
    """Whether attention gives the right result though something happens on a rank."""
    x = np.ones((4, rows, 64))  # many: messages so long that every rank waits for its neighbour
    backend = Odd(rank=rank, what=what, done=[])
    return np.allclose(rc.attention(x, x, x, ring=ring, backend=backend, side="kv", way="ring"), 1)


def suspend() -> None:
    """Stop, and let somebody else continue this process."""
    subprocess.Popen(["sh", "-c", f"sleep 1.2; kill -CONT {os.getpid()}"])
    os.kill(os.getpid(), signal.SIGSTOP)


def no_room() -> None:
    raise MemoryError("no room")


class NoRoom(GenericBackend):
    """Fails before anything is sent."""

    def pack(self, *args: Any) -> Any:
        no_room()


def timed(event: str, ring: rc.Ring, rank: int, what: Any, rows: int = 128) -> None:
    begin = time.monotonic()
    right = attend(ring, rank, what, rows)
    note(event, right=right, seconds=time.monotonic() - begin)


def in_pieces() -> bool:
    """Whether messages that travel in many pieces arrive as they were."""
    x = np.random.default_rng(0).standard_normal((3, 2, 35, 8))
    layout = rc.Layout.zigzag(length=35, ranks=3)
    q, k, v = (layout.shard(part, RANK) for part in x)
    whole, ringcore_mpi.exchange.pieces = ringcore_mpi.exchange.pieces, lambda nbytes: pieces(nbytes, 1000)
    out = rc.attention(q, k, v, ring=rc.Ring(MPI.COMM_WORLD, timeout=60.0), layout=layout, side="kv")
    ringcore_mpi.exchange.pieces = whole
    return np.allclose(out, layout.shard(rc.attention(*x), RANK))


comm = MPI.COMM_WORLD
note("in pieces", right=in_pieces())
timed("slow", rc.Ring(comm, timeout=1.0), 1, lambda: time.sleep(3.0))
timed("slow with little", rc.Ring(comm, timeout=1.0), 1, lambda: time.sleep(3.0), rows=2)
timed("suspended", rc.Ring(comm, timeout=2.0), 2, suspend)

ring = rc.Ring(comm, timeout=60.0)
timed("agree", ring, 0, lambda: None)
try:
    with noted("disagreement"):
        if RANK == 0:
            rc.attention(np.ones((4, 2)), np.ones((4, 2)), np.ones((4, 2)), ring=ring)
        elif RANK == 1:
            ring.allreduce(np.ones(3))
        else:
            ring.gather(np.ones((4, 2)), rc.Layout.contiguous(length=12, ranks=3))
except ValueError:
    note("agreed", right=bool(ring.allreduce(np.array(1.0)) == 3))


def fail(name: str, call: Any) -> None:
    """A failure, what the ring says afterwards, and whether another one works in its place."""
    again = comm.Dup()
    with suppress(MemoryError, rc.PeerFailed), noted(name):
        call(rc.Ring(again, timeout=60.0))
    with suppress(rc.RingError), noted(f"after a failure {name}"):
        rc.Ring(again).allreduce(np.ones(3))
    again.Free()
    again = comm.Dup()
    timed(f"mended after a failure {name}", rc.Ring(again, timeout=60.0), 0, lambda: None)
    again.Free()


for culprit in range(3):
    fail(f"in a kernel of rank {culprit}", lambda ring, culprit=culprit: attend(ring, culprit, no_room))
x = np.ones((4, 8, 8))
fail("of all ranks", lambda ring: rc.attention(x, x, x, ring=ring, backend=NoRoom()))
note("all done")
