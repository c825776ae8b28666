"""Contract, line 10, without MPI: a silent rank becomes an error that names it, a slow one does not."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import ringcore as rc
from ringcore.block import GenericBackend
from ringcore.errors import PeerTimeout, RingError
from ringcore.partial import Partial

X = np.ones((1, 3, 2))


@dataclass(frozen=True)
class Delayed(GenericBackend):
    """Waits before it computes, at most so many seconds."""

    event: Any = None
    seconds: float = 0.0

    def attend(self, q: Any, k: Any, v: Any, step: Any, into: Partial | None) -> Partial:
        self.event.wait(self.seconds)
        return super().attend(q, k, v, step, into)


def watch(ranks, silent, call):
    """What each rank's call raises, where one rank is silent until all others have given up."""
    given_up, over = threading.Barrier(ranks - 1), threading.Event()

    def on_rank(ring):
        try:
            return call(ring, over)
        except RingError as error:
            if ring.rank != silent:
                given_up.wait(20.0)
                over.set()
            return error

    return rc.run_ranks(ranks, on_rank, timeout=0.4)


def test_line_10_a_rank_that_stops_in_the_middle_is_named_with_the_hop():
    def call(ring, over):
        if ring.rank == 1:
            post, hops = ring.transport.exchange, iter(range(9))

            def stop(sends, recvs):
                if next(hops) == 1:
                    over.wait(20.0)
                return post(sends, recvs)

            ring.transport.exchange = stop
        return rc.attention(X, X, X, ring=ring, side="kv", way="ring")

    start = time.monotonic()
    errors = watch(4, 1, call)
    assert time.monotonic() - start < 10
    for rank in (0, 2):  # its neighbours; rank 3 waits for rank 2, which waits for rank 1
        assert isinstance(errors[rank], PeerTimeout)
        assert errors[rank].peer == 1
        for text in (f"rank {rank} of 4", "0.4 s", "rank 1", "hop 1"):
            assert text in str(errors[rank])


def test_line_10_a_rank_that_never_calls_is_named():
    def call(ring, over):
        if ring.rank == 2:
            over.wait(20.0)
            return None
        return rc.attention(X, X, X, ring=ring)

    errors = watch(3, 2, call)
    for rank in (0, 1):
        assert isinstance(errors[rank], PeerTimeout)
        assert errors[rank].peer == 2
        assert "rank 2" in str(errors[rank]).lower()


def test_line_10_a_slow_rank_is_not_a_dead_one():
    """It computes for longer than the others would wait for an answer."""
    never = threading.Event()

    def on_rank(ring):
        backend = Delayed(event=never, seconds=0.6) if ring.rank == 1 else GenericBackend()
        return rc.attention(X, X, X, ring=ring, backend=backend, side="kv", way="ring")

    start = time.monotonic()
    results = rc.run_ranks(3, on_rank, timeout=0.3)
    assert time.monotonic() - start > 1.5
    assert all(np.allclose(x, 1) for x in results)


def test_line_10_a_rank_that_fails_ends_the_others_at_once():
    def on_rank(ring):
        if ring.rank == 1:
            raise KeyError("no such genome")
        return rc.attention(X, X, X, ring=ring)

    start = time.monotonic()
    with pytest.raises(KeyError, match="no such genome") as caught:
        rc.run_ranks(3, on_rank, timeout=60.0)
    assert time.monotonic() - start < 10
    assert "rank 1 of 3" in " ".join(caught.value.__notes__)
