"""Contract, line 9: a wrong argument raises the same exception on every rank, before any data moves.

One row for each kind of mistake; `tests/core` has the table of all messages.
"""

from __future__ import annotations

import numpy as np
import pytest

import ringcore as rc
from tests.contract.problems import assert_same_error, on_every_rank
from tests.contract.wrong_arguments import BACKWARD, DIFFERENT, WRONG, E, L, right


@pytest.mark.parametrize("ranks", [1, 2, 8])
@pytest.mark.parametrize("name", WRONG)
@pytest.mark.parametrize("everywhere", [True, False])
def test_line_09_a_wrong_argument_of_attention(name, ranks, everywhere):
    change, kind, text = WRONG[name]

    def call(ring):
        arrays, options = right(ring)
        if everywhere or ring.rank == ring.size - 1:
            change(arrays, options)
        return rc.attention(*arrays, **options)

    where = f"on rank {0 if everywhere else ranks - 1} of {ranks}"
    assert_same_error(on_every_rank(ranks, call), kind, text, where if ranks > 1 else "")


@pytest.mark.parametrize("name", DIFFERENT)
def test_line_09_arguments_that_differ_between_ranks(name):
    def call(ring):
        arrays, options = right(ring)
        return rc.attention(*arrays, **{**options, **DIFFERENT[name](ring.rank, ring.size)})

    assert_same_error(on_every_rank(3, call), ValueError, "all ranks must pass the same", name, "Rank 0")


@pytest.mark.parametrize("ranks", [1, 3])
def test_line_09_a_dense_mask_that_does_not_fit(ranks):
    def call(ring):
        arrays, options = right(ring)
        columns = L * ranks - (ring.rank == ranks - 1)
        return rc.attention(*arrays, **options, mask=rc.dense(np.ones((L, columns), bool)))

    where = f"on rank {ranks - 1} of {ranks}" if ranks > 1 else ""
    assert_same_error(on_every_rank(ranks, call), ValueError, "dense mask", "Shard its rows", where)


def test_line_09_heads_that_differ_between_ranks():
    def call(ring):
        (q, k, v), options = right(ring)
        return rc.attention(q[: 1 + ring.rank % 2], k[:1], v[:1], **options)

    assert_same_error(on_every_rank(4, call), ValueError, "all ranks must pass the same", "rank 1")


@pytest.mark.parametrize("ranks", [1, 3])
@pytest.mark.parametrize("name", BACKWARD)
def test_line_09_a_wrong_argument_of_the_pullback(name, ranks):
    given, kind, text = BACKWARD[name]

    def call(ring):
        arrays, options = right(ring)
        _, pullback = rc.attention_vjp(*arrays, **options)
        ring.traffic.messages = 0  # those of the forward pass, which was sound
        mine = given if ring.rank == ring.size - 1 else {}
        return pullback(**{"dout": np.ones((2, L, E), np.float32), **mine})

    assert_same_error(on_every_rank(ranks, call), kind, text, f"rank {ranks - 1}" if ranks > 1 else "")


@pytest.mark.parametrize("what", ["wrt", "dlse"])
def test_line_09_pullbacks_that_differ_between_ranks(what):
    def call(ring):
        arrays, options = right(ring)
        _, pullback = rc.attention_vjp(*arrays, **options)
        ring.traffic.messages = 0
        dout, dlse = np.ones((2, L, E), np.float32), np.ones((2, L), np.float32)
        mine = {"wrt": {"wrt": ("q",)}, "dlse": {"dlse": dlse}}[what] if ring.rank == 1 else {}
        return pullback(dout, **mine)

    assert_same_error(on_every_rank(3, call), ValueError, "all ranks must pass the same", what)


def test_line_09_a_sound_call_works_after_a_wrong_one():
    """An error leaves nothing behind: no message, no rank that is one call ahead."""

    def on_rank(ring):
        arrays, options = right(ring)
        want = rc.attention(*arrays, **options)
        for _ in range(3):
            with pytest.raises(ValueError, match="finite number"):
                rc.attention(*arrays, **options, scale=np.inf if ring.rank == 2 else 1.0)
        assert np.array_equal(rc.attention(*arrays, **options), want)

    rc.run_ranks(4, on_rank, timeout=20.0)
