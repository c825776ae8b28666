"""Contract, line 9: a wrong argument raises the same exception on every rank, before any data moves.

One row for each kind of mistake; `tests/core` has the table of all messages.
"""

from __future__ import annotations

import numpy as np
import pytest

import ringcore as rc
from tests.contract.problems import assert_same_error, on_every_rank

L, D, E = 4, 3, 2


def right(ring):
    """Arguments that are right on every rank."""
    length = L * ring.size
    q, k, v = (np.ones((2, L, n), np.float32) for n in (D, D, E))
    return [q, k, v], {"ring": ring, "layout": rc.Layout.contiguous(length=length, ranks=ring.size)}


def wrong_array(place, make):
    def change(arrays, options):
        arrays[place] = make(arrays[place])

    return change


def wrong_option(**given):
    def change(arrays, options):
        options.update({k: f(options) if callable(f) else f for k, f in given.items()})

    return change


def longer(options):
    ranks = options["ring"].size
    return rc.Layout.contiguous(length=(L + 1) * ranks, ranks=ranks)


def more_ranks(options):
    ranks = options["ring"].size
    return rc.Layout.contiguous(length=L * ranks, ranks=ranks + 1)


WRONG = {
    "not an array": (wrong_array(0, lambda x: x.tolist()), TypeError, "arrays of one library"),
    "no axis of tokens": (wrong_array(1, lambda x: x[0, 0]), ValueError, "same number of axes"),
    "dtype": (wrong_array(2, lambda x: x.astype(np.float64)), TypeError, "share one dtype"),
    "head dim": (wrong_array(0, lambda x: x[..., 1:]), ValueError, "head dimension D"),
    "heads": (wrong_array(0, lambda x: np.ones((3, L, D), np.float32)), ValueError, "multiple"),
    "heads of k and v": (wrong_array(2, lambda x: x[:1]), ValueError, "same heads G"),
    "batch": (wrong_array(0, lambda x: x[None]), ValueError, "same number of axes"),
    "length": (wrong_array(0, lambda x: x[:, 1:]), ValueError, "this rank's part of"),
    "layout": (wrong_option(layout="zigzag"), TypeError, "must be a ringcore.Layout"),
    "layout of another length": (wrong_option(layout=longer), ValueError, "this rank's part of"),
    "layout of other ranks": (wrong_option(layout=more_ranks), ValueError, "the ranks of the ring"),
    "mask": (wrong_option(mask=np.ones((L, L), bool)), TypeError, "ringcore.dense(array)"),
    "mask for another batch": (wrong_option(mask=rc.padding([1, 2])), ValueError, "broadcast to batch"),
    "scale": (wrong_option(scale=float("nan")), ValueError, "finite number"),
    "side": (wrong_option(side="both"), ValueError, "side must be"),
    "way": (wrong_option(way="scenic"), ValueError, "way must be"),
    "seq_axis": (wrong_option(seq_axis=1), ValueError, "seq_axis must be"),
}


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


DIFFERENT = {
    "scale": lambda rank: {"scale": 1.0 + rank},
    "mask": lambda rank: {"mask": rc.window(rank, 0)},
    "side": lambda rank: {"side": ("kv", "q")[rank % 2]},
    "way": lambda rank: {"way": ("ring", "direct")[rank % 2]},
    "layout": lambda rank: {
        "layout": (rc.Layout.contiguous, rc.Layout.striped)[rank % 2](length=3 * L, ranks=3)
    },
}


@pytest.mark.parametrize("name", DIFFERENT)
def test_line_09_arguments_that_differ_between_ranks(name):
    def call(ring):
        arrays, options = right(ring)
        return rc.attention(*arrays, **{**options, **DIFFERENT[name](ring.rank)})

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


BACKWARD = {
    "wrt": ({"wrt": ("q", "w")}, ValueError, "wrt must name"),
    "wrt twice": ({"wrt": ("q", "q")}, ValueError, "each once"),
    "no wrt": ({"wrt": ()}, ValueError, "one or more"),
    "dout": ({"dout": np.ones((2, L, D), np.float32)}, ValueError, "dout must have shape"),
    "dlse": ({"dlse": np.ones((L,), np.float32)}, ValueError, "dlse must have shape"),
    "dtype": ({"dout": np.ones((2, L, E), np.float64)}, TypeError, "dout must have the dtype"),
}


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
