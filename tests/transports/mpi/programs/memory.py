"""Peak memory of attention where every block visits every rank: python memory.py S G."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from notes import MPI, RANK, SIZE, note
from ringcore_numpy import NumpyBackend

import ringcore as rc

S, G = int(sys.argv[1]), int(sys.argv[2])
H, D = 4, 128


def peak() -> int:
    """Bytes: the most that this process has had in memory."""
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return 1024 * int(status["VmHWM"].split()[0])


ring = rc.Ring(MPI.COMM_WORLD, timeout=60.0)
backend = NumpyBackend(tile=(256, 256))  # the mask is narrow: large tiles would only cost time
few = np.ones((H, 1, D), np.float32)  # so that everything is loaded and all threads run
rc.attention_vjp(few, few, few, ring=ring, backend=backend)[1](few)
idle = peak()

# Striped, so that documents lie on all ranks.
layout, mask = rc.Layout.striped(length=S, ranks=SIZE), rc.documents([256] * (S // 256))
rng = np.random.default_rng(RANK)
q, k, v, dout = (rng.random((heads, S // SIZE, D), np.float32) for heads in (H, G, G, H))
out, pullback = rc.attention_vjp(q, k, v, ring=ring, layout=layout, mask=mask, backend=backend)
forward = peak()
pullback(dout)
note("peak", idle=idle, forward=forward - idle, both=peak() - idle, shard=q.nbytes)
