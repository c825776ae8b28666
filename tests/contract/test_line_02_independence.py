"""Contract, line 2: results do not depend on P, layout, tile sizes, or on which side travels and how."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import strategies as st

import ringcore as rc
from ringcore.testing import And, Call, DrawnMask, Problem, assert_occurred, check_attention, solve
from ringcore.testing.strategies import layouts
from tests.contract.problems import (
    CHOICES,
    NUMPY_KERNELS,
    bits,
    for_all,
    kernels,
    layouts_of,
    problems,
    variant,
    whole,
)
from tests.libraries import LIBRARIES

TILES = (None, (1, 1), (3, 5), (8, 2), (16, 64))


@st.composite
def spreads(draw, library):
    """A problem, and the same one spread over ranks in another way and cut into other tiles."""
    problem = draw(problems(library, max_length=30))
    ranks = draw(st.integers(1, 8))
    q_layout = draw(layouts(length=problem.S_q, ranks=ranks))
    same = problem.k_layout == problem.q_layout
    sides = ["kv", "q"] if problem.mask.dense is None else ["kv"]
    other = variant(
        problem,
        q_layout=q_layout,
        k_layout=q_layout if same else draw(layouts(length=problem.S_k, ranks=ranks)),
        side=draw(st.sampled_from(sides)),
        way=draw(st.sampled_from(["ring", "direct"])),
        tile=draw(st.sampled_from(TILES)),
    )
    return problem, other, draw(st.sampled_from(kernels(library)))


@pytest.mark.parametrize("name", ["numpy", "array-api-strict", "torch"])
def test_line_02_the_same_problem_spread_in_two_ways_has_one_answer(name):
    library = LIBRARIES[name]()

    def check(drawn):
        problem, other, kernel = drawn
        problem.reference, problem.conditions, problem.may_be_nonfinite  # noqa: B018 - for both
        check_attention(problem, solve(problem))
        check_attention(other, solve(other, backend=kernel))

    counted = for_all(library, spreads(library), check, count=60)
    if name == "numpy":
        assert_occurred(counted, ["GQA", "two layouts", "cross-attention", "per-row mask", "empty shard"])


@pytest.fixture(scope="module")
def base() -> Problem:
    layout = rc.Layout.contiguous(length=29, ranks=1)
    mask = DrawnMask(And(Call("causal", (3,)), Call("documents", ((9, 0, 13, 4),))))
    problem = Problem(xp=np, q_layout=layout, mask=mask, dtype="float32", heads=(4, 2), D=3, E=5, seed=7)
    problem.reference, problem.conditions, problem.may_be_nonfinite  # noqa: B018
    return problem


@pytest.mark.parametrize("ranks", range(1, 9))
def test_line_02_every_layout_side_way_and_kernel(base, ranks):
    for turn, layout in enumerate(layouts_of(29, ranks)):
        for place in (0, 3) if (turn + ranks) % 2 else (1, 2):
            side, way = CHOICES[place]
            kernel = NUMPY_KERNELS[(turn + place) % 3]
            tile = TILES[(turn + 2 * place + ranks) % len(TILES)]
            other = variant(base, q_layout=layout, k_layout=layout, side=side, way=way, tile=tile)
            check_attention(other, solve(other, backend=kernel))


@pytest.mark.parametrize("ranks", range(2, 9))
@pytest.mark.parametrize("kernel", NUMPY_KERNELS)
def test_line_02_ring_and_direct_give_the_same_bits_where_keys_travel(base, kernel, ranks):
    """Blocks are computed with in the same order, and a block that has travelled is the block it was."""
    numpy = LIBRARIES["numpy"]()
    layout = rc.Layout.zigzag(length=29, ranks=ranks)
    found = [
        whole(variant(base, q_layout=layout, k_layout=layout, side="kv", way=way), kernel)
        for way in ("ring", "direct")
    ]
    for name in ("out", "lse", "dq"):
        ring, direct = (bits(getattr(x, name), numpy) for x in found)
        assert ring == direct, name


@pytest.mark.parametrize("kernel", NUMPY_KERNELS)
def test_line_02_two_runs_give_the_same_bits(base, kernel):
    numpy = LIBRARIES["numpy"]()
    for turn, (side, way) in enumerate(CHOICES):
        layout = layouts_of(29, 5)[turn]
        problem = variant(base, q_layout=layout, k_layout=layout, side=side, way=way, tile=(8, 8))
        first, again = whole(problem, kernel), whole(problem, kernel)
        assert [bits(x, numpy) for x in first] == [bits(x, numpy) for x in again]
