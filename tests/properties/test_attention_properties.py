"""Attention over 1 to 8 ranks equals dense attention in float64, whatever is asked for.

Examples are drawn by `ringcore.testing.strategies`, which users of the library have, too. Every property
counts which hard cases it has met and fails if one was missing: what was never tried is not tested.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, event, given, settings
from ringcore_numpy import NumpyBackend

import ringcore as rc
from ringcore.block import GenericBackend
from ringcore.testing import (
    HARD_CASES,
    And,
    Call,
    DenseBits,
    DrawnMask,
    Not,
    Or,
    Problem,
    Results,
    assert_occurred,
    check_attention,
    solve,
)
from ringcore.testing.strategies import attention_problems
from tests.libraries import Library
from tests.profiles import examples

KERNELS = {"numpy": NumpyBackend, "numpy-readonly": GenericBackend}
"""Kernels by library; all others have the generic ones, which read-only NumPy tests as well."""

EAGER = ["numpy", "numpy-readonly", "array-api-strict", "torch"]
"""Libraries that take any shape; JAX compiles anew for each and has the pinned problems."""

REQUESTS = [f"side={side}" for side in ("auto", "kv", "q")] + [
    f"way={way}" for way in ("auto", "ring", "direct")
]
OFTEN = ["P > 1", "P > S", "empty shard", "S is not a multiple of P", "D != E", "seq_axis=-3"]
"""Hard cases so frequent that fifty examples hold each of them; three hundred hold every one."""

ignore_scope = settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])


@pytest.fixture
def met(xp: Library) -> Iterator[Counter[str]]:
    """Counts events over the examples of one property, and fails if they left out a hard case."""
    counted: Counter[str] = Counter()
    yield counted
    drawn = sum(counted[f"side={side}"] for side in ("auto", "kv", "q"))
    if drawn >= 250:
        assert_occurred(counted, [*HARD_CASES, *REQUESTS])
    elif drawn >= 45:
        assert_occurred(counted, OFTEN)


def meet(problem: Problem, counted: Counter[str]) -> None:
    for case in problem.events():
        event(case)
        counted[case] += 1


def dtypes_of(xp: Library) -> set[str]:
    if xp.name == "array-api-strict":
        return {"float64", "float32"}
    return {"float64", "float32", "float16", "bfloat16"}


def of_library(problem: Problem, xp: Library) -> Problem:
    """The same problem with the arrays of a library, in a dtype that it has."""
    dtype = problem.dtype if problem.dtype in dtypes_of(xp) else "float32"
    return replace(problem, xp=xp.xp, dtype=dtype)


def solve_with(xp: Library, problem: Problem) -> list[Results]:
    return solve(problem, backend=KERNELS.get(xp.name, GenericBackend))


# ------------------------------------------------------------------ line 1: the error


@pytest.mark.parametrize("xp", EAGER, indirect=True)
@ignore_scope
@given(problem=attention_problems(np, dtypes=("float64", "float32", "float16", "bfloat16")))
def test_contract_01_forward_lse_and_gradients_are_within_8_u_cond(xp, met, problem):
    meet(problem, met)
    problem = of_library(problem, xp)
    check_attention(problem, solve_with(xp, problem))


PINNED = [
    Problem(
        xp=np,
        q_layout=rc.Layout.contiguous(length=17, ranks=3),
        mask=DrawnMask(Call("causal")),
        dtype="float32",
    ),
    Problem(
        xp=np,
        q_layout=rc.Layout.zigzag(length=26, ranks=2),
        mask=DrawnMask(
            Or(
                And(Call("causal"), Call("documents", (((7, 0, 12, 4), (26, 0, 0, 0)),))),
                Call("prefix", (2,)),
            )
        ),
        batch=(2,),
        heads=(4, 2),
        E=3,
    ),
    Problem(
        xp=np,
        q_layout=rc.Layout.striped(length=5, ranks=8),
        k_layout=rc.Layout.from_lengths([0, 6, 0, 0, 6, 0, 0, 0]),
        mask=DrawnMask(Or(Call("window", (1, 2)), Call("global_tokens", ((0, 3),)))),
        heads=(3, 1),
        side="q",
    ),
    Problem(
        xp=np,
        q_layout=rc.Layout.contiguous(length=21, ranks=5),
        mask=DrawnMask(Not(Call("window", (3, None))), DenseBits((2,), 5)),
        heads=(2, 2),
        seq_axis=-3,
        spread=100.0,
        fill=0.3,
    ),
    Problem(
        xp=np,
        q_layout=rc.Layout.striped(length=24, ranks=4, block=2),
        mask=DrawnMask(And(Call("padding", (((3, 24, 0),),)), Call("causal", (2,)))),
        batch=(1, 3),
        dtype="bfloat16",
        way="direct",
    ),
    Problem(xp=np, q_layout=rc.Layout.contiguous(length=1, ranks=3), heads=None, with_dlse=False, scale=-2.0),
    Problem(
        xp=np,
        q_layout=rc.Layout.zigzag(length=9, ranks=2),
        k_layout=rc.Layout.contiguous(length=0, ranks=2),
        dtype="float32",
        scale=0.0,
    ),
    Problem(
        xp=np,
        q_layout=rc.Layout.from_lengths([2, 11, 0]),
        mask=DrawnMask(Call("causal", (-2,))),
        dtype="float16",
        heads=(8, 2),
        D=16,
        side="kv",
        way="ring",
        tile=(16, 16),
    ),
]


@pytest.mark.parametrize("problem", PINNED, ids=[f"problem{n}" for n in range(len(PINNED))])
def test_contract_01_pinned_problems_of_eight_shapes(xp, problem):
    problem = of_library(problem, xp)
    check_attention(problem, solve_with(xp, problem))


def test_the_pinned_problems_are_the_hard_ones():
    assert len(PINNED) == 8
    met = Counter(case for problem in PINNED for case in problem.events())
    assert_occurred(met, [*set(HARD_CASES) - {"P = 1"}, *REQUESTS])


def equal_terms(S_q, S_k, spread):
    layout = {S: rc.Layout.zigzag(length=S, ranks=2) for S in (S_q, S_k)}
    return Problem(
        xp=np,
        q_layout=layout[S_q],
        k_layout=layout[S_k],
        dtype="float32",
        heads=(4, 1),
        spread=spread,
        fill=0.3,
    )


@pytest.mark.parametrize("kernel", [NumpyBackend, GenericBackend])
@pytest.mark.parametrize("spread", [0.0, 1.0])
@pytest.mark.parametrize(("S_q", "S_k"), [(512, 512), (8, 4096), (4096, 8)])
def test_contract_01_sums_of_many_equal_terms(kernel, spread, S_q, S_k):
    """All roundings of a sum go the same way: an error that grows with its length shows here first."""
    problem = equal_terms(S_q, S_k, spread)
    check_attention(problem, solve(problem, backend=kernel))


# ------------------------------------------------------------------ line 4: NaN and inf


@pytest.mark.parametrize("xp", EAGER, indirect=True)
@settings(ignore_scope, max_examples=examples(100))
@given(problem=attention_problems(np, dtypes=("float64", "float32"), poison=True))
def test_contract_04_a_bad_number_reaches_only_the_rows_that_see_it(xp, met, problem):
    meet(problem, met)
    if problem.poison is not None:
        event(f"{problem.poison.value} in {problem.poison.name}")
    problem = of_library(problem, xp)
    check_attention(problem, solve_with(xp, problem))
