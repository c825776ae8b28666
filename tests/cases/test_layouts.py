"""Cases 23 to 25: which rank holds what."""

from __future__ import annotations

import numpy as np
import pytest

import ringcore as rc
from ringcore.testing import Call, DrawnMask, Problem, check_attention, oracle, solve
from tests.contract.problems import CHOICES, assert_same_error, layouts_of, on_every_rank

# ------------------------------------------------------------------ 23


@pytest.mark.parametrize("ranks", [2, 3, 5])
def test_case_23_a_layout_that_does_not_fit_the_lengths_is_an_error(ranks):
    """Shards of one layout passed as those of another, wherever a rank's count tells them apart."""
    S = 6 * ranks + 1
    layouts = layouts_of(S, ranks)
    counts = {layout: tuple(map(layout.count, range(ranks))) for layout in layouts}
    x, tried = np.ones((S, 2)), 0
    for made in layouts:
        for said in layouts:
            if counts[made] != counts[said]:

                def call(ring, made=made, said=said):
                    mine = made.shard(x, ring.rank)
                    return rc.attention(mine, mine, mine, ring=ring, layout=said)

                assert_same_error(on_every_rank(ranks, call), ValueError, "must hold this rank's part of")
                tried += 1
    assert tried >= 4


def test_case_23_a_layout_of_another_sequence_or_ring_is_an_error():
    x = np.ones((4, 2))
    for layout in (rc.Layout.zigzag(length=13, ranks=3), rc.Layout.zigzag(length=12, ranks=4)):
        raised = on_every_rank(3, lambda ring, layout=layout: rc.attention(x, x, x, ring=ring, layout=layout))
        assert_same_error(raised, ValueError, "Expected", repr(layout))


def test_case_23_layouts_that_differ_between_ranks_are_an_error():
    def call(ring):
        make = rc.Layout.zigzag if ring.rank == 2 else rc.Layout.contiguous
        x = np.ones((4, 2))
        return rc.attention(x, x, x, ring=ring, layout=make(length=12, ranks=3))

    assert_same_error(on_every_rank(3, call), ValueError, "all ranks must pass the same layout", "rank 2")


def test_case_23_the_layout_decides_what_causal_means():
    """Equal shapes, other positions: each layout is right for its own shards and for no others'."""
    x = np.random.default_rng(23).standard_normal((12, 4))
    made, said = rc.Layout.contiguous(length=12, ranks=3), rc.Layout.zigzag(length=12, ranks=3)
    want = oracle.attention(x, x, x, oracle.causal())[0]

    def run(cut, layout):
        def on_rank(ring):
            mine = cut.shard(x, ring.rank)
            return rc.attention(mine, mine, mine, ring=ring, layout=layout, mask=rc.causal())

        return cut.unshard(rc.run_ranks(3, on_rank, timeout=20.0))

    for layout in (made, said):
        assert np.allclose(run(layout, layout), want, rtol=1e-12, atol=1e-14)
    assert not np.allclose(run(made, said), want, atol=1e-2)


# ------------------------------------------------------------------ 24


@pytest.mark.parametrize("ranks", range(1, 9))
def test_case_24_the_sequence_comes_back_in_order(ranks):
    """By hand, through scatter and gather, and through another layout."""
    for S in (0, 1, 7, 26):
        layouts = layouts_of(S, ranks)
        for turn, layout in enumerate(layouts):
            x = np.arange(3 * S).reshape(1, S, 3)
            other = layouts[(turn + 1) % len(layouts)]
            shards = [layout.shard(x, rank) for rank in range(ranks)]
            assert np.array_equal(layout.unshard(shards), x)

            def on_rank(ring, x=x, layout=layout, other=other):
                mine = ring.scatter(x if ring.rank == ranks - 1 else None, layout, root=ranks - 1)
                there = rc.reshard(mine, ring, layout, other)
                assert np.array_equal(there, other.shard(x, ring.rank))
                return ring.gather(there, other)

            assert np.array_equal(rc.run_ranks(ranks, on_rank, timeout=20.0)[0], x)


# ------------------------------------------------------------------ 25


@pytest.mark.parametrize("ranks", [1, 2, 3, 8])
def test_case_25_positions_tell_where_each_row_belongs(ranks):
    """Output rows put where `positions` says are the output of the whole sequence."""
    for turn, layout in enumerate(layouts_of(23, ranks)):
        side, way = CHOICES[turn % 4]
        problem = Problem(xp=np, q_layout=layout, mask=DrawnMask(Call("causal")), side=side, way=way)
        check_attention(problem, solve(problem))  # assembles by positions


@pytest.mark.parametrize("ranks", [1, 2, 3, 8])
def test_case_25_labels_and_position_ids_go_through_the_same_shard(ranks):
    S = 23
    labels = np.array(list("ACGTN" * 5))[:S]
    for layout in layouts_of(S, ranks):
        for rank in range(ranks):
            positions = layout.positions(rank)
            assert np.array_equal(layout.shard(np.arange(S), rank, axis=0), positions)
            assert layout.shard(labels, rank, axis=0).tolist() == labels[positions].tolist()
            x = np.arange(2 * S).reshape(2, S)
            assert np.array_equal(layout.shard(x, rank, axis=1), x[:, positions])
    with pytest.raises(ValueError, match="Pass axis=0"):
        layout.shard(labels, 0)
