"""Contract, line 9, with check="once": what happens when arguments differ after they have been compared.

The ring is broken by that, and the processes end by Abort: so each case is a job of its own.
"""

from __future__ import annotations

import json

import pytest

from tests.mpirun import mpirun

PROGRAM = """
import json, sys, time
from mpi4py import MPI
import ringcore as rc
from tests.contract.wrong_arguments import right

name, known = sys.argv[1:]
later = {
    "scale": {"scale": 2.0},
    "mask": {"mask": rc.causal()},
    "way": {"way": "direct"},
    "wrong": {"scale": float("nan")},
}[name]
ring = rc.Ring(MPI.COMM_WORLD, timeout=20.0, check="once")
arrays, options = right(ring)
rc.attention(*arrays, **options)
if known == "known":  # all ranks have agreed on the other arguments before, too
    rc.attention(*arrays, **{**options, **later})
MPI.COMM_WORLD.Barrier()  # whoever fails ends a call that others have not finished
if ring.rank == ring.size - 1:
    options |= later
said = []
for call in (lambda: rc.attention(*arrays, **options), lambda: ring.allreduce(arrays[0])):
    begin, found = time.monotonic(), "nothing"
    try:
        call()
    except Exception as error:
        found = f"{type(error).__name__}: {error}"
    said.append((found, time.monotonic() - begin))
with open(f"said-{ring.rank}", "w") as file:
    json.dump(said, file)
"""
CASES = [
    (2, "scale", "known"),
    (2, "mask", "new"),
    (2, "wrong", "new"),
    (3, "way", "known"),
    (3, "scale", "new"),
    (3, "wrong", "new"),
]


@pytest.mark.parametrize(("ranks", "name", "known"), CASES)
def test_line_09_once_a_later_difference_is_an_error_on_every_rank(tmp_path, ranks, name, known):
    """No rank hangs, and none goes on with wrong numbers; the ring is of no use afterwards."""
    ended = mpirun(ranks, "-c", PROGRAM, name, known, timeout=40, cwd=tmp_path)
    assert ended.code is not None, ended.text
    for rank in range(ranks):
        first, second = json.loads((tmp_path / f"said-{rank}").read_text(encoding="utf-8"))
        culprit = name == "wrong" and rank == ranks - 1
        assert first[0].startswith("ValueError: scale" if culprit else ("RingError", "PeerFailed"))
        assert first[1] < 5
        assert second[0].startswith("RingError: a ring cannot be used after a failure")
