"""Contract, line 3: queries that see no key, ranks without tokens, sequences of length 0 and 1, P > S."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import strategies as st

import ringcore as rc
from ringcore.testing import (
    And,
    Call,
    DrawnMask,
    Not,
    Problem,
    assert_occurred,
    check_attention,
    solve,
)
from ringcore.testing.strategies import masks
from tests.contract.problems import CHOICES, for_all, in_order, kernels, layouts_of, problems, variant, whole


def hiding(S_q, S_k, batch):
    """Any mask, but for keys or documents that are cut out of it."""
    few = st.integers(0, max(1, S_q // 2))
    holes = st.one_of(
        few.map(lambda n: Call("documents", ((n, 0, n),))),
        few.map(lambda n: Call("keys", (n, n + 1))),
        few.map(lambda n: Not(Call("window", (n, None)))),
        few.map(lambda n: Call("causal", (-n - 1,))),
    )
    trees = masks(S_q, S_k, batch, dense=False).map(lambda drawn: drawn.tree or Call("full"))
    return st.builds(lambda tree, hole: DrawnMask(And(tree, hole)), trees, holes)


@pytest.mark.parametrize("xp", ["numpy", "numpy-readonly", "array-api-strict", "torch"], indirect=True)
def test_line_03_a_query_that_sees_no_key(xp):
    def check(problem):
        results = solve(problem, backend=kernels(xp)[problem.seed % len(kernels(xp))])
        check_attention(problem, results)
        got = in_order(problem, results)._asdict()
        out, lse, dq, dk, dv = (heads_first(problem, name, x) for name, x in got.items())
        blind = ~np.any(problem.visible, axis=-1)
        assert np.all(out[blind] == 0)
        assert np.all(lse[blind] == -np.inf)
        assert np.all(np.isfinite(lse[~blind]))
        assert np.all(dq[blind] == 0)
        H, G = problem.heads or (1, 1)
        by_group = problem.visible.reshape(*dk.shape[:-2], H // G * problem.S_q, problem.S_k)
        unseen = ~np.any(by_group, axis=-2)
        assert np.all(dk[unseen] == 0)
        assert np.all(dv[unseen] == 0)

    def heads_first(problem, name, x):
        x = xp.numpy(x)
        return np.moveaxis(x, -3, -2) if problem.seq_axis == -3 and name != "lse" else x

    counted = for_all(xp, problems(xp, drawn_masks=hiding), check, count=80)
    if xp.name == "numpy":
        hard = ["query that sees no key", "key that no query sees", "rank that sees no key", "empty shard"]
        assert_occurred(counted, [*hard, "P > S"])


@pytest.mark.parametrize("ranks", range(1, 9))
def test_line_03_lengths_0_and_1_and_more_ranks_than_tokens(ranks):
    for S_q, S_k in ((0, 0), (1, 1), (3, 3), (0, 5), (5, 0), (1, 9), (9, 1)):
        q_layouts, k_layouts = layouts_of(S_q, ranks), layouts_of(S_k, ranks)
        for turn in (ranks % 2, 3 - ranks % 2):
            side, way = CHOICES[turn]
            problem = Problem(
                xp=np, q_layout=q_layouts[turn % len(q_layouts)], k_layout=k_layouts[turn % 2],
                mask=DrawnMask(Call("causal")), heads=(2, 1), D=3, E=2, side=side, way=way, seed=turn,
            )  # fmt: skip
            kernel = kernels("numpy")[(turn + ranks // 2) % 3]
            check_attention(problem, solve(problem, backend=kernel))


@pytest.mark.parametrize("name", ["numpy", "array-api-strict", "torch"])
def test_line_03_a_rank_with_no_tokens_gets_empty_results(name):
    from tests.libraries import LIBRARIES

    xp = LIBRARIES[name]()
    layout = rc.Layout.from_lengths([0, 5, 0, 2, 0])
    for side, way in CHOICES:
        problem = Problem(xp=xp.xp, q_layout=layout, heads=(2, 1), D=3, E=4, side=side, way=way)
        results = solve(problem)
        check_attention(problem, results)
        for rank in (0, 2, 4):
            shapes = [tuple(x.shape) for x in results[rank]]
            assert shapes == [(2, 0, 4), (2, 0), (2, 0, 3), (1, 0, 3), (1, 0, 4)]


def test_line_03_a_row_that_sees_nothing_ignores_its_cotangents():
    """Whatever dout and dlse are there: 0 x inf would be NaN in the rows that do see."""

    def spoil(values):
        values["dout"][..., :4, :] = np.inf
        values["dlse"][..., :4] = np.nan

    mask = DrawnMask(And(Call("causal"), Call("keys", (4, 99))))
    for turn, (side, way) in enumerate(CHOICES):
        layout = layouts_of(13, 3)[turn]
        problem = Problem(xp=np, q_layout=layout, mask=mask, heads=(2, 1), side=side, way=way)
        for kernel in kernels("numpy"):
            got = whole(variant(problem, change=spoil), kernel)
            assert all(np.all(np.isfinite(x)) for x in (got.out, got.dq, got.dk, got.dv))
            assert np.all(got.dq[:, :4] == 0)
            assert np.array_equal(got.dk, whole(problem, kernel).dk)
