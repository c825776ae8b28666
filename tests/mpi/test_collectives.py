"""Collectives and feedforward layers over processes give the same bits as over threads."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ringcore as rc
from ringcore.collectives import alltoall
from ringcore.testing.strategies import layouts
from tests.cases.test_transport import SIXTEEN_BITS, every_pattern
from tests.libraries import Library
from tests.mpi.together import P, bits, gathered, same_as_threads
from tests.profiles import examples

DTYPES = [np.float64, np.float32, np.float16, ml_dtypes.bfloat16, np.int32, np.uint8, np.complex128, np.bool_]
NUMBERS = DTYPES[:-1]


def drawn(seed, shape, dtype):
    """Numbers of every magnitude; as bools, coin tosses."""
    x = np.random.default_rng(seed).standard_normal(shape) * 10
    return (x > 0) if dtype is np.bool_ else x.astype(dtype)


@st.composite
def moves(draw):
    """A whole array, two layouts of the same length for it, the sequence axis, and a root."""
    old = draw(layouts(ranks=P))
    new = draw(layouts(length=old.length, ranks=P))
    lead, width = draw(st.sampled_from([(), (2,), (1, 3)])), draw(st.sampled_from([0, 1, 3]))
    axis = draw(st.sampled_from([-2, -1, 0]))
    shape = [*lead, width]
    shape.insert(len(shape) if axis == -1 else 0 if axis == 0 else len(shape) - 1, old.length)
    x = drawn(draw(st.integers(0, 99)), shape, draw(st.sampled_from(DTYPES)))
    return x, old, new, axis, draw(st.integers(0, P - 1))


@given(move=moves())
def test_scatter_reshard_and_gather_move_every_bit(ring, move):
    whole, old, new, axis, root = move

    def body(ring):
        mine = ring.scatter(whole if ring.rank == root else None, old, root=root, axis=axis)
        moved = rc.reshard(mine, ring, old, new, axis=axis)
        return mine, moved, ring.gather(moved, new, root=P - 1 - root, axis=axis)

    everybody = same_as_threads(ring, body)
    if everybody is not None:
        for rank, (mine, moved, joined) in enumerate(everybody):
            assert bits(mine) == bits(old.shard(whole, rank, axis=axis))
            assert bits(moved) == bits(new.shard(whole, rank, axis=axis))
            assert bits(joined) == (bits(whole) if rank == P - 1 - root else None)


@settings(max_examples=examples(150))
@given(
    shape=st.sampled_from([(), (0,), (1,), (3, 5), (2, 0, 3), (P,), (1000,)]),
    dtype=st.sampled_from(NUMBERS),
    seed=st.integers(0, 99),
)
def test_a_sum_has_the_same_bits_everywhere(ring, shape, dtype, seed):
    everybody = same_as_threads(ring, lambda ring: [ring.allreduce(drawn([seed, ring.rank], shape, dtype))])
    if everybody is not None:
        assert {bits(total) for (total,) in everybody} == {bits(everybody[0][0])}


@settings(max_examples=examples(150))
@given(sizes=st.lists(st.integers(0, 4), min_size=P, max_size=P), dtype=st.sampled_from(DTYPES))
def test_alltoall_is_a_transposition(ring, sizes, dtype):
    def sent(source, to):
        return drawn([source, to], (sizes[source], sizes[to]), dtype)

    everybody = same_as_threads(ring, lambda ring: alltoall([sent(ring.rank, to) for to in range(P)], ring))
    if everybody is not None:
        for rank, got in enumerate(everybody):
            assert [bits(x) for x in got] == [bits(sent(source, rank)) for source in range(P)]


@pytest.mark.parametrize("dtype", SIXTEEN_BITS)
def test_case_29_every_pattern_of_16_bits_arrives(ring, dtype):
    """NaN with all its payloads, infinities, -0, subnormals."""
    values, old = every_pattern(dtype), rc.Layout.zigzag(length=256, ranks=P)
    new = rc.Layout.striped(length=256, ranks=P)
    mine = ring.scatter(values if ring.rank == 0 else None, old)
    back = ring.gather(rc.reshard(mine, ring, old, new), new)
    if ring.rank == 0:
        assert back.dtype == values.dtype
        assert np.array_equal(back.view(np.uint16), values.view(np.uint16))


def test_arrays_of_every_library_are_moved_and_summed(ring, xp: Library):
    old, new = rc.Layout.zigzag(length=11, ranks=P), rc.Layout.striped(length=11, ranks=P)
    whole = np.arange(33.0, dtype=np.float32).reshape(11, 3)

    def body(ring):
        mine = ring.scatter(xp.asarray(whole) if ring.rank == 0 else None, old)
        moved = rc.reshard(mine, ring, old, new)
        return ring.gather(moved, new), ring.allreduce(xp.asarray(whole * ring.rank)), moved

    everybody = same_as_threads(ring, body, xp.numpy)
    if everybody is not None:
        assert np.array_equal(everybody[0][0], whole)
        assert np.array_equal(everybody[-1][1], whole * (P * (P - 1) // 2))


@settings(max_examples=examples(60))
@given(
    layout=layouts(ranks=P),
    dtype=st.sampled_from([np.float64, np.float32, np.float16]),
    gated=st.booleans(),
    seed=st.integers(0, 99),
)
def test_gradients_of_a_feedforward_layer_are_summed_alike(ring, layout, dtype, gated, seed):
    names = ["w_in", "w_out", "b_in", "b_out", *(["w_gate", "b_gate"] if gated else [])]
    shapes = {"w_in": (3, 5), "w_out": (5, 2), "b_in": (5,), "b_out": (2,), "w_gate": (3, 5), "b_gate": (5,)}
    layer = rc.FeedForward(**{name: drawn([seed, len(name)], shapes[name], dtype) / 10 for name in names})
    x, dy = drawn([seed, 1], (layout.length, 3), dtype), drawn([seed, 2], (layout.length, 2), dtype)

    def body(ring):
        y, pullback = rc.feedforward_vjp(layer, layout.shard(x, ring.rank), activation="silu", ring=ring)
        dlayer, dx = pullback(layout.shard(dy, ring.rank))
        return y, dx, *dlayer

    everybody = same_as_threads(ring, body)
    if everybody is not None:
        assert len({tuple(map(bits, mine[2:])) for mine in everybody}) == 1, "a sum, the same on every rank"


def test_groups_that_were_split_off_work_by_themselves(ring):
    """Halves in reverse order, while the whole ring is there, too."""

    def body(ring):
        with ring.split(color=ring.rank % 2, key=-ring.rank) as part:
            total = part.allreduce(np.array([1, ring.rank]))
            x = np.arange(6.0).reshape(3, 2) + ring.rank
            out = rc.attention(x, x, x, ring=part, mask=rc.causal())
            return total, out, ring.allreduce(total), np.array([part.rank, part.size])

    everybody = same_as_threads(ring, body)
    if everybody is not None:
        for rank, (total, *_, place) in enumerate(everybody):
            members = sorted(range(rank % 2, P, 2), reverse=True)
            assert total.tolist() == [len(members), sum(members)]
            assert place.tolist() == [members.index(rank), len(members)]


def test_the_helper_tells_bits_apart(ring):
    """What these tests rest on can fail: one bit on one rank is enough."""
    same_as_threads(ring, lambda ring: [np.zeros(3)])
    threads = []

    def body(ring):
        threads.append(type(ring.transport).__name__)
        return [np.array([0.0, -0.0 if threads[0] == threads[-1] and ring.rank == P - 1 else 0.0])]

    failed = None
    try:
        same_as_threads(ring, body)
    except AssertionError as error:
        failed = str(error)
    assert gathered(ring, failed)[0] == f"array 0 of rank {P - 1} of {P} must be as on threads"
