"""Contract, line 5: any S, P, H, G with H % G == 0, and document lengths; the user never pads."""

from __future__ import annotations

import numpy as np
import pytest

from ringcore.testing import And, Call, DrawnMask, Problem, check_attention, solve
from tests.contract.problems import CHOICES, kernels, layouts_of

LENGTHS = (2, 3, 7, 13, 26, 31)
HEADS = ((1, 1), (3, 1), (6, 3), (5, 5), (12, 4), (7, 7))
DOCUMENTS = ((1, 7, 13, 3), (0, 5), (100,), (2, 2, 2, 2), (1, 1, 1))


@pytest.mark.parametrize("ranks", range(1, 9))
def test_line_05_any_length_on_any_number_of_ranks(ranks):
    turn = ranks
    for S in LENGTHS:
        for layout in layouts_of(S, ranks)[turn % 2 :: 2]:
            side, way = CHOICES[turn % 4]
            documents = Call("documents", (DOCUMENTS[turn % len(DOCUMENTS)],))
            causal = Call("causal")
            tree = (None, causal, documents, And(causal, documents))[turn // 2 % 4]
            problem = Problem(
                xp=np, q_layout=layout, mask=DrawnMask(tree), heads=HEADS[turn % len(HEADS)], D=3, E=2,
                side=side, way=way, dtype=("float32", "float64")[turn % 2], seed=turn,
            )  # fmt: skip
            check_attention(problem, solve(problem, backend=kernels("numpy")[turn % 3]))
            turn += 1


@pytest.mark.parametrize("ranks", [11, 13, 16])
def test_line_05_more_ranks(ranks):
    for turn, layout in enumerate(layouts_of(29, ranks)[1:4]):
        side, way = CHOICES[turn % 4]
        problem = Problem(
            xp=np, q_layout=layout, mask=DrawnMask(Call("causal")), heads=(2, 1), side=side, way=way
        )
        check_attention(problem, solve(problem))


@pytest.mark.parametrize("heads", [(28, 7), (8, 2), (40, 8), (9, 3), (5, 1)])
def test_line_05_any_heads(heads):
    for ranks in (1, 7):
        for turn, layout in enumerate(layouts_of(17, ranks)[:2]):
            side, way = CHOICES[(ranks + turn) % 4]
            problem = Problem(
                xp=np, q_layout=layout, mask=DrawnMask(Call("causal")), batch=(2,), heads=heads, side=side,
                way=way,
            )  # fmt: skip
            check_attention(problem, solve(problem, backend=kernels("numpy")[turn]))
