"""One rank is killed or stopped: python fault.py SIGNAL PHASE [WIDTH [shared]]."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from notes import MPI, RANK, SIZE, note, note_shared_memory

import ringcore as rc
from ringcore.block import GenericBackend

HOW, PHASE, WIDTH = sys.argv[1], sys.argv[2], int(sys.argv[3]) if len(sys.argv) > 3 else 16
CULPRIT, TIMEOUT = 2, 2.0


def fault() -> None:
    if PHASE == "computing":
        time.sleep(1.2)  # meanwhile it answers who asks
    note("fault")
    os.kill(os.getpid(), getattr(signal, HOW))


@dataclass(frozen=True)
class Faulty(GenericBackend):
    """Ends in its n-th kernel of a kind, counted from 1."""

    at: tuple[str, int] = ("", 0)
    begun: Counter[str] = field(default_factory=Counter)

    def _begin(self, kind: str) -> None:
        self.begun[kind] += 1
        if RANK == CULPRIT and (kind, self.begun[kind]) == self.at:
            fault()

    def attend(self, *args: Any) -> Any:
        self._begin("attend")
        return super().attend(*args)

    def attend_backward(self, *args: Any) -> Any:
        self._begin("attend_backward")
        return super().attend_backward(*args)


forward, backward = Faulty(at=("attend", 1)), Faulty(at=("attend_backward", 2))
ring = rc.Ring(MPI.COMM_WORLD, timeout=TIMEOUT)
ring.transport.shares_from = 0 if "shared" in sys.argv else None
note_shared_memory()
x = np.random.default_rng(RANK).standard_normal((64, WIDTH))
options: dict[str, Any] = {"ring": ring, "side": "kv", "way": "ring"}
try:
    out, saved = rc.attention(x, x, x, return_residuals=True, **options)
    if PHASE == "before":
        if RANK == CULPRIT:
            fault()
        rc.attention(x, x, x, **options)
    elif PHASE in ("forward", "computing"):
        rc.attention(x, x, x, **options, backend=forward)
    elif PHASE == "backward":
        _, pullback = rc.attention_vjp(x, x, x, **options, backend=backward)
        pullback(out)
    elif PHASE == "later":
        for _ in range(3):
            rc.attention_vjp(x, x, x, **options)[1](out)
            rc.attention_backward(x, x, x, *saved, out, **options)
        rc.attention_backward(x, x, x, *saved, out, **options, backend=backward)
    elif PHASE == "part":
        part = ring.split(color=min(RANK, 1))  # ranks 1 and 2 are one group, rank 0 another
        if RANK == CULPRIT:
            fault()
        part.allreduce(x)
    ring.allreduce(np.ones(SIZE))  # those whose part of the call was complete
except rc.RingError as error:
    note("error", type=type(error).__name__, text=str(error), peer=getattr(error, "peer", None))
    note("kernels", begun=forward.begun["attend"] or backward.begun["attend_backward"])
    raise
note("all done")
