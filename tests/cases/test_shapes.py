"""Cases 18 to 22: lengths, documents and head counts that others refuse, cut or hang on."""

from __future__ import annotations

import numpy as np
import pytest

import ringcore as rc
from ringcore.testing import And, Call, DrawnMask, Problem, check_attention, solve
from tests.contract.problems import CHOICES, kernels, layouts_of

CAUSAL = Call("causal")

# ------------------------------------------------------------------ 18


@pytest.mark.parametrize("S", [26, *range(1, 9), 21, 30])
def test_case_18_zigzag_takes_any_length(S):
    for ranks in (2, 3, 5):
        for turn in range((S + ranks) % 2, 4, 2):
            side, way = CHOICES[turn]
            layout = rc.Layout.zigzag(length=S, ranks=ranks)
            problem = Problem(xp=np, q_layout=layout, mask=DrawnMask(CAUSAL), D=3, side=side, way=way)
            check_attention(problem, solve(problem, backend=kernels("numpy")[turn // 2]))


def test_case_18_a_genome_of_83626_bases_on_two_ranks():
    """A short causal window, so that the right answer is a sum over nine neighbours."""
    S, back = 83_626, 8
    x = np.random.default_rng(18).standard_normal((3, S, 4)).astype(np.float32)
    layout = rc.Layout.zigzag(length=S, ranks=2)
    assert [layout.count(rank) for rank in range(2)] == [41_813, 41_813]

    def on_rank(ring):
        q, k, v = (layout.shard(y, ring.rank) for y in x)
        return rc.attention(q, k, v, ring=ring, layout=layout, mask=rc.window(back, 0))

    out = layout.unshard(rc.run_ranks(2, on_rank, timeout=60.0))
    q, k, v = np.pad(x.astype(np.float64), ((0, 0), (back, 0), (0, 0)))
    near = np.arange(S)[:, None] + np.arange(back + 1)
    scores = np.einsum("id,ijd->ij", q[back:], k[near]) / 2
    weights = np.where(near >= back, np.exp(scores - scores.max(axis=1, keepdims=True)), 0)
    want = np.einsum("ij,ijd->id", weights, v[near]) / weights.sum(axis=1, keepdims=True)
    assert np.max(np.abs(out - want)) < 4e-6


# ------------------------------------------------------------------ 19


@pytest.mark.parametrize("ranks", range(1, 9))
def test_case_19_the_last_token_counts(ranks):
    """V = 1 1 1 1 2 2 2 and equal scores: the last row is the mean of all seven."""
    v = np.array([1.0, 1, 1, 1, 2, 2, 2])[:, None]
    for layout in layouts_of(7, ranks):
        for side, way in CHOICES:

            def on_rank(ring, layout=layout, side=side, way=way):
                mine = layout.shard(v, ring.rank)
                return rc.attention(
                    0 * mine, 0 * mine, mine, ring=ring, layout=layout, mask=rc.causal(), side=side, way=way
                )

            out = layout.unshard(rc.run_ranks(ranks, on_rank, timeout=20.0))
            assert out.shape == (7, 1)
            assert np.allclose(out[:, 0], np.cumsum(v[:, 0]) / np.arange(1, 8), rtol=1e-15)
            assert abs(out[-1, 0] - 10 / 7) < 1e-15


# ------------------------------------------------------------------ 20


@pytest.mark.timeout(60)
@pytest.mark.parametrize("ranks", range(2, 9))
def test_case_20_a_length_that_p_does_not_divide_does_not_hang(ranks):
    for S in range(1, 2 * ranks + 2):
        if S % ranks:
            side, way = CHOICES[S % 4]
            layout = layouts_of(S, ranks)[S % 4]
            problem = Problem(xp=np, q_layout=layout, mask=DrawnMask(CAUSAL), side=side, way=way)
            check_attention(problem, solve(problem, timeout=10.0))


@pytest.mark.timeout(60)
@pytest.mark.parametrize("ranks", [2, 3, 5])
def test_case_20_without_a_layout_the_shards_may_have_any_lengths(ranks):
    rng = np.random.default_rng(20)
    for counts in ([1] * ranks, [0, *[3] * (ranks - 1)], [7, *[1] * (ranks - 1)], [0] * ranks):
        x = rng.standard_normal((sum(counts), 3))
        shards = np.split(x, np.cumsum(counts)[:-1])

        def on_rank(ring, shards=shards):
            mine = shards[ring.rank]
            return rc.attention(mine, mine, mine, ring=ring, mask=rc.causal())

        out = np.concatenate(rc.run_ranks(ranks, on_rank, timeout=10.0))
        assert np.allclose(out, rc.attention(x, x, x, mask=rc.causal()), rtol=1e-12, atol=1e-14)


# ------------------------------------------------------------------ 21


@pytest.mark.parametrize("lengths", [(1, 7, 13, 3), (1, 7, 13, 3, 0), (24,), (0, 0, 24), (2, 2), (1,) * 24])
@pytest.mark.parametrize("ranks", [1, 4])
def test_case_21_documents_of_any_lengths(ranks, lengths):
    documents = Call("documents", (lengths,))
    for turn, layout in enumerate(layouts_of(24, ranks)):
        side, way = CHOICES[(turn + ranks) % 4]
        tree = (documents, And(documents, CAUSAL))[turn // 2 % 2]
        problem = Problem(xp=np, q_layout=layout, mask=DrawnMask(tree), D=3, side=side, way=way)
        check_attention(problem, solve(problem, backend=kernels("numpy")[turn % 2]))


def test_case_21_each_batch_row_has_its_own_documents():
    documents = Call("documents", (((1, 7, 13, 3), (24, 0, 0, 0), (5, 5, 5, 5)),))
    for turn, layout in enumerate(layouts_of(24, 4)):
        side, way = CHOICES[turn % 4]
        problem = Problem(
            xp=np, q_layout=layout, mask=DrawnMask(documents), batch=(3,), heads=(2, 1), side=side, way=way
        )
        for kernel in kernels("numpy"):
            check_attention(problem, solve(problem, backend=kernel))


# ------------------------------------------------------------------ 22


@pytest.mark.parametrize(
    ("heads", "ranks"), [((28, 7), 8), ((8, 2), 4), ((40, 8), 4), ((3, 3), 2), ((5, 1), 7)]
)
def test_case_22_head_counts_have_nothing_to_do_with_ranks(heads, ranks):
    for turn, (side, way) in enumerate(CHOICES):
        layout = layouts_of(19, ranks)[turn % 3]
        problem = Problem(
            xp=np, q_layout=layout, mask=DrawnMask(CAUSAL), heads=heads, D=4, E=3, side=side, way=way,
            dtype=("float32", "float64")[turn % 2], seq_axis=(-2, -3)[turn // 2],
        )  # fmt: skip
        check_attention(problem, solve(problem, backend=kernels("numpy")[turn % 2]))
