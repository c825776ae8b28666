"""Contract, line 9, over processes: the same error on every rank, soon, before data moves."""

from __future__ import annotations

import time

import numpy as np
import pytest
from mpi4py import MPI

import ringcore as rc
from ringcore.collectives import alltoall
from tests.contract.wrong_arguments import BACKWARD, DIFFERENT, WRONG, D, E, L, right
from tests.mpi.together import P, bits, gathered, several

SECONDS = 5.0


def raised(ring, call):
    """What a call raises, which must be the same on every rank, soon and before an array is sent."""
    messages, begin, error = ring.traffic.messages, time.monotonic(), None
    try:
        call()
    except Exception as caught:
        error = caught
    seconds = time.monotonic() - begin
    found = gathered(ring, (type(error), str(error), ring.traffic.messages - messages))
    assert seconds < SECONDS
    assert found == [(found[0][0], found[0][1], 0)] * P
    assert error is not None, "the call must raise"
    # No message is left behind, and no rank is one call ahead.
    assert ring.allreduce(np.array(ring.rank + 1)) == P * (P + 1) // 2
    return error


def assert_says(error, kind, *texts):
    assert type(error) is kind
    for text in texts:
        assert text in str(error)


def where(rank):
    return f"on rank {rank} of {P}" if P > 1 else ""


@pytest.mark.parametrize("everywhere", [True, False])
@pytest.mark.parametrize("name", WRONG)
def test_line_09_a_wrong_argument_of_attention(ring, name, everywhere):
    change, kind, text = WRONG[name]
    arrays, options = right(ring)
    if everywhere or ring.rank == P - 1:
        change(arrays, options)
    error = raised(ring, lambda: rc.attention(*arrays, **options))
    assert_says(error, kind, text, where(0 if everywhere else P - 1))


@several
@pytest.mark.parametrize("name", DIFFERENT)
def test_line_09_arguments_that_differ_between_ranks(ring, name):
    arrays, options = right(ring)
    options |= DIFFERENT[name](ring.rank, P)
    error = raised(ring, lambda: rc.attention(*arrays, **options))
    assert_says(error, ValueError, "all ranks must pass the same", name, "Rank 0")


@pytest.mark.parametrize("name", BACKWARD)
def test_line_09_a_wrong_argument_of_the_pullback(ring, name):
    given, kind, text = BACKWARD[name]
    arrays, options = right(ring)
    _, pullback = rc.attention_vjp(*arrays, **options)
    mine = {"dout": np.ones((2, L, E), np.float32), **(given if ring.rank == P - 1 else {})}
    assert_says(raised(ring, lambda: pullback(**mine)), kind, text, where(P - 1))


# ------------------------------------------------------------------ collectives

LAYOUT, OTHER = rc.Layout.contiguous(length=L * P, ranks=P), rc.Layout.zigzag(length=L * P + 1, ranks=P)
X = np.ones((L, D))
LAYER = rc.FeedForward(w_in=np.ones((D, 4)), w_out=np.ones((4, E)))

COLLECTIVES = {
    "scatter of nothing": (lambda ring: ring.scatter(None, LAYOUT), ValueError, "must be an array on root"),
    "scatter from nobody": (lambda ring: ring.scatter(X, LAYOUT, root=P), ValueError, "root"),
    "gather to nobody": (lambda ring: ring.gather(X, LAYOUT, root=-1), ValueError, "root"),
    "gather of another length": (lambda ring: ring.gather(X[1:], LAYOUT), ValueError, "length"),
    "gather without a layout": (lambda ring: ring.gather(X, "zigzag"), TypeError, "Layout"),
    "reshard to another length": (lambda ring: rc.reshard(X, ring, LAYOUT, OTHER), ValueError, "same length"),
    "reshard of a list": (lambda ring: rc.reshard([1.0], ring, LAYOUT, LAYOUT), TypeError, "array"),
    "allreduce of bools": (lambda ring: ring.allreduce(X > 0), TypeError, "numbers to be summed"),
    "alltoall of too few": (lambda ring: alltoall([X] * (P - 1), ring), ValueError, "rank"),
    "split by a word": (lambda ring: ring.split("even"), TypeError, "str"),
    "feedforward of another width": (
        lambda ring: rc.feedforward_vjp(LAYER, X[:, 1:], ring=ring),
        ValueError,
        "D",
    ),
}
SOUND = {
    "scatter": lambda ring: ring.scatter(np.ones((L * P, D)), LAYOUT),
    "gather": lambda ring: ring.gather(X, LAYOUT),
    "reshard": lambda ring: rc.reshard(X, ring, LAYOUT, LAYOUT),
    "allreduce": lambda ring: ring.allreduce(X),
    "alltoall": lambda ring: alltoall([X] * P, ring),
    "split": lambda ring: ring.split(0),
    "feedforward": lambda ring: rc.feedforward_vjp(LAYER, X, ring=ring),
}


@pytest.mark.parametrize("everywhere", [True, False])
@pytest.mark.parametrize("name", COLLECTIVES)
def test_line_09_a_wrong_argument_of_a_collective(ring, name, everywhere):
    wrong, kind, text = COLLECTIVES[name]
    one = 0 if name == "scatter of nothing" else P - 1  # only the root is asked for an array
    call = wrong if everywhere or ring.rank == one else SOUND[name.partition(" ")[0]]
    assert_says(raised(ring, lambda: call(ring)), kind, text, where(0 if everywhere else one))


@several
@pytest.mark.parametrize("other", ["attention", *SOUND])
def test_line_09_different_calls_on_different_ranks(ring, other):
    """The last rank makes another call than the others."""
    arrays, options = right(ring)
    calls = {"attention": lambda ring: rc.attention(*arrays, **options), **SOUND}
    usual = "gather" if other == "attention" else "attention"
    call = calls[other if ring.rank == P - 1 else usual]
    error = raised(ring, lambda: call(ring))
    assert_says(error, ValueError, "all ranks must make the same call. Rank 0 made", f"rank {P - 1}")


@several
def test_line_09_forward_on_one_rank_and_backward_on_another(ring):
    arrays, options = right(ring)
    _, pullback = rc.attention_vjp(*arrays, **options)
    dout = np.ones((2, L, E), np.float32)
    error = raised(ring, lambda: pullback(dout) if ring.rank == 0 else rc.attention(*arrays, **options))
    assert_says(error, ValueError, "all ranks must make the same call")


# ------------------------------------------------------------------ check="once"


def once():
    """A ring that compares arguments once. Later mistakes break it: `tests/contract/test_line_09_once.py`."""
    return rc.Ring(MPI.COMM_WORLD, timeout=20.0, check="once")


@pytest.mark.parametrize("name", ["scale", "head dim", "length"])
def test_line_09_once_the_first_call_is_compared_as_always(ring, name):
    ring = once()
    change, kind, text = WRONG[name]
    arrays, options = right(ring)
    if ring.rank == P - 1:
        change(arrays, options)
    assert_says(raised(ring, lambda: rc.attention(*arrays, **options)), kind, text, where(P - 1))
    arrays, options = right(ring)
    want = rc.attention(*arrays, **{**options, "ring": rc.Ring(ring.transport)})
    for _ in range(2):
        assert bits(rc.attention(*arrays, **options)) == bits(want)
