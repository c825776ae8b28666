"""Attention over processes is within the contract, and gives the same bits as over threads."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import event, given, settings
from ringcore_numpy import NumpyBackend

import ringcore as rc
from ringcore.block import GenericBackend
from ringcore.testing import (
    And,
    Call,
    DenseBits,
    DrawnMask,
    Or,
    Poison,
    Problem,
    Results,
    assert_occurred,
    check_attention,
    solve_on,
)
from ringcore.testing.strategies import attention_problems
from tests.libraries import Library
from tests.mpi.together import P, same_as_threads
from tests.profiles import examples

ALL = ("float64", "float32", "float16", "bfloat16")
OFTEN = {"empty shard", "P > S", "D != E", "seq_axis=-3", "query that sees no key", "two layouts"}
"""Hard cases that sixty examples hold."""
OF_SEVERAL = {"empty shard", "P > S", "two layouts"}
"""Those that one rank does not know, or hardly."""


@pytest.fixture(scope="module")
def met() -> Iterator[Counter[str]]:
    """Counts the hard cases of this file's properties, and fails if one did not occur."""
    counted: Counter[str] = Counter()
    yield counted
    assert_occurred(counted, OFTEN - OF_SEVERAL if P == 1 else OFTEN)


def solved(ring, problem, backend, numpy=np.asarray):
    """Solve a problem here and on threads; rank 0 holds the results to the contract."""
    everybody = same_as_threads(ring, lambda ring: solve_on(ring, problem, backend=backend), numpy)
    if everybody is not None:
        with np.errstate(invalid="ignore"):
            check_attention(problem, [Results(*mine) for mine in everybody])


def meet(problem, counted):
    for case in problem.events():
        event(case)
        counted[case] += 1


@given(problem=attention_problems(np, ranks=P, dtypes=ALL))
def test_contract_01_numpy_kernels(ring, met, problem):
    meet(problem, met)
    solved(ring, problem, NumpyBackend)


@settings(max_examples=examples(150))
@given(problem=attention_problems(np, ranks=P, dtypes=ALL))
def test_contract_01_generic_kernels(ring, met, problem):
    meet(problem, met)
    solved(ring, problem, GenericBackend)


@settings(max_examples=examples(150))
@given(problem=attention_problems(np, ranks=P, dtypes=("float64", "float32"), poison=True))
def test_contract_04_a_bad_number_reaches_only_the_rows_that_see_it(ring, problem):
    solved(ring, problem, NumpyBackend)


CAUSAL, WINDOW = DrawnMask(Call("causal")), DrawnMask(Call("window", (2, 1)))
EARLIER = DrawnMask(Or(Call("causal", (-1,)), Call("prefix", (2,))))
DENSE = DrawnMask(Call("causal"), DenseBits((2,), 3))
HIDDEN = DrawnMask(And(Call("causal"), Call("documents", ((5, 0, 9),))))
ZIGZAG, STRIPED = rc.Layout.zigzag(length=19, ranks=P), rc.Layout.striped(length=19, ranks=P, block=2)
LATE = rc.Layout.from_lengths([0] * (P - 1) + [7])
PINNED = [
    Problem(xp=np, q_layout=ZIGZAG, mask=CAUSAL, dtype="float32", heads=(4, 2), side="kv"),
    Problem(
        xp=np,
        q_layout=STRIPED,
        k_layout=ZIGZAG,
        mask=WINDOW,
        batch=(2,),
        side="q",
        way="direct",
        spread=30.0,
    ),
    Problem(xp=np, q_layout=LATE, mask=EARLIER, seq_axis=-3),
    Problem(xp=np, q_layout=ZIGZAG, mask=DENSE, heads=(2, 2), way="ring"),
    Problem(xp=np, q_layout=STRIPED, mask=CAUSAL, dtype="bfloat16", D=8, E=5),
    Problem(xp=np, q_layout=STRIPED, mask=HIDDEN, poison=Poison("v", 6, np.nan)),
]


@pytest.mark.parametrize("xp", ["numpy-readonly", "array-api-strict", "torch"], indirect=True)
@pytest.mark.parametrize("problem", PINNED, ids=[f"problem{n}" for n in range(len(PINNED))])
def test_contract_01_arrays_of_every_library(ring, xp: Library, problem):
    dtype = "float32" if xp.name == "array-api-strict" and problem.dtype == "bfloat16" else problem.dtype
    problem = replace(problem, xp=xp.xp, dtype=dtype)
    solved(ring, problem, None, xp.numpy)


@pytest.mark.parametrize("xp", ["jax"], indirect=True)
def test_contract_01_arrays_of_jax(ring, xp: Library):
    """Of one problem, with shards of the same shape: JAX compiles for each, on every rank."""
    layout = rc.Layout.contiguous(length=4 * P, ranks=P)
    solved(ring, Problem(xp=xp.xp, q_layout=layout, mask=CAUSAL, dtype="float32", side="kv"), None, xp.numpy)


# ------------------------------------------------------------------ check="once"


@settings(max_examples=examples(60))
@given(problem=attention_problems(np, ranks=P))
def test_comparing_arguments_once_changes_no_bit(ring, problem):
    """Each example is called twice, so that the second call relies on the first."""
    ring = rc.Ring(ring.transport, timeout=ring.timeout, check="once")
    same_as_threads(ring, lambda ring: (*solve_on(ring, problem), *solve_on(ring, problem)))
