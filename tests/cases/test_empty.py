"""Cases 13 to 17: NaN, empty, fully masked."""

from __future__ import annotations

import math

import numpy as np
import pytest
from ringcore_numpy import NumpyBackend

import ringcore as rc
from ringcore.partial import finish, identity, merge
from ringcore.testing import (
    And,
    Call,
    DrawnMask,
    Not,
    Problem,
    assemble,
    check_attention,
    oracle,
    solve,
)
from tests.contract.problems import CHOICES, Changed, kernels, layouts_of, variant
from tests.libraries import LIBRARIES

# ------------------------------------------------------------------ 13


@pytest.mark.parametrize("name", ["numpy", "torch", "array-api-strict"])
def test_case_13_a_fully_masked_row_leaves_every_gradient_finite(name):
    library = LIBRARIES[name]()
    rows = {
        "the first": And(Call("causal"), Call("keys", (1, 99))),
        "one in the middle": And(Call("documents", ((6, 1, 6),)), Not(Call("keys", (6, 7)))),
        "all": Call("keys", (0, 0)),
        "the last": Call("documents", ((12,),)),
    }
    for turn, tree in enumerate(rows.values()):
        for ranks in (1, 4, 7):
            side, way = CHOICES[(turn + ranks) % 4]
            layout = layouts_of(13, ranks)[turn % 3]
            problem = Problem(
                xp=library.xp, q_layout=layout, mask=DrawnMask(tree), heads=(2, 1), side=side, way=way,
                dtype="float32", tile=(None, (4, 4))[turn % 2],
            )  # fmt: skip
            for kernel in kernels(library):
                results = solve(problem, backend=kernel)
                check_attention(problem, results)
                got = assemble(problem, results)
                assert all(np.all(np.isfinite(x)) for x in (got.out, got.dq, got.dk, got.dv))


def test_case_13_merging_nothing_with_nothing_is_nothing():
    nothing = identity(np, (2, 3), np.float32)
    with np.errstate(all="raise"):
        acc, m, l = merge(np, nothing, nothing)  # noqa: E741
    out, lse = finish(np, merge(np, nothing, nothing))
    assert np.all(acc == 0) and np.all(m == -np.inf) and np.all(l == 0)
    assert np.all(out == 0) and np.all(lse == -np.inf)


# ------------------------------------------------------------------ 14


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("ranks", [1, 3, 8])
def test_case_14_what_is_stored_at_masked_positions_does_not_matter(ranks, value):
    """A padded batch: each row's tail holds garbage."""
    lengths = (9, 4)

    def garbage(values):
        for row, length in enumerate(lengths):
            values["k"][row, :, length:] = value
            values["v"][row, :, length:] = value

    for turn, layout in enumerate(layouts_of(12, ranks)):
        side, way = CHOICES[turn % 4]
        clean = Problem(
            xp=np, q_layout=layout, mask=DrawnMask(Call("padding", (lengths,))), batch=(2,), heads=(2, 1),
            dtype="float32", side=side, way=way, tile=(None, (4, 4))[turn % 2],
        )  # fmt: skip
        kernel = kernels("numpy")[(turn + ranks) % 2]
        want = assemble(clean, solve(clean, backend=kernel))
        got = assemble(clean, solve(variant(clean, change=garbage), backend=kernel))
        for x, y in zip(got, want, strict=True):
            assert np.array_equal(x, y)


# ------------------------------------------------------------------ 15


@pytest.mark.parametrize("kernel", kernels("numpy"))
def test_case_15_one_document_on_one_rank(kernel):
    """The other ranks have nothing to compute, and take part all the same."""
    for ranks in (2, 4, 7):
        for owner in range(ranks):
            start = [0] * ranks
            start[owner] = 5
            layout = rc.Layout.contiguous(length=5 * ranks, ranks=ranks)
            inside = Call("documents", ((5 * owner, 5),))
            tree = And(inside, Call("keys", (5 * owner, 5 * owner + 5)))
            for side, way in CHOICES:
                problem = Problem(
                    xp=np, q_layout=layout, mask=DrawnMask(tree), heads=(2, 1), D=3, E=4, side=side, way=way
                )
                results = solve(problem, backend=kernel)
                check_attention(problem, results)
                for rank, result in enumerate(results):
                    assert [x.shape for x in result] == [(2, 5, 4), (2, 5), (2, 5, 3), (1, 5, 3), (1, 5, 4)]
                    if rank != owner:
                        assert np.all(result.lse == -np.inf)
                        assert not any(np.any(x) for x in (result.out, result.dq, result.dk, result.dv))


# ------------------------------------------------------------------ 16


@pytest.mark.parametrize("name", ["numpy", "torch", "array-api-strict"])
def test_case_16_fewer_keys_than_ranks(name):
    """A rank without keys contributes lse = -inf, not 0."""
    library = LIBRARIES[name]()
    for S_k in (0, 3):
        for turn, k_layout in enumerate(layouts_of(S_k, 8)[: 5 if name == "numpy" else 2]):
            side, way = CHOICES[turn % 4]
            layout = rc.Layout.striped(length=13, ranks=8)
            for tree in (None, Call("causal", (-1,))):
                problem = Problem(
                    xp=library.xp, q_layout=layout, k_layout=k_layout, mask=DrawnMask(tree), heads=(2, 1),
                    D=3, E=2, side=side, way=way,
                )  # fmt: skip
                for kernel in kernels(library):
                    check_attention(problem, solve(problem, backend=kernel))


def test_case_16_lse_of_equal_scores_counts_the_keys():
    k_layout, layout = rc.Layout.contiguous(length=3, ranks=8), rc.Layout.contiguous(length=8, ranks=8)

    def on_rank(ring):
        q, k = np.zeros((1, 2)), np.zeros((k_layout.count(ring.rank), 2))
        return rc.attention(q, k, k, ring=ring, layout=layout, k_layout=k_layout, return_lse=True)[1].item()

    assert np.allclose(rc.run_ranks(8, on_rank, timeout=20.0), np.log(3), rtol=1e-15)


# ------------------------------------------------------------------ 17


@pytest.mark.parametrize("kernel", kernels("numpy"))
@pytest.mark.parametrize("tree", [None, Call("causal"), Call("window", (3, 9))], ids=repr)
def test_case_17_every_length_modulo_the_tile(kernel, tree):
    for S in range(24, 40):
        layout = rc.Layout.zigzag(length=S, ranks=1 + S % 3)
        side, way = CHOICES[S % 4]
        problem = Problem(
            xp=np, q_layout=layout, mask=DrawnMask(tree), tile=((8, 8), (16, 8), (8, 16))[S % 3], side=side,
            way=way, dtype="float32",
        )  # fmt: skip
        check_attention(problem, solve(problem, backend=kernel))


def test_case_17_4092_tokens_in_tiles_of_128():
    S, rows = 4092, 682
    layout = rc.Layout.contiguous(length=S, ranks=3)
    problem = Changed(
        xp=np, q_layout=layout, mask=DrawnMask(Call("causal")), tile=(128, 128), dtype="float32", D=8, E=8
    )
    got = assemble(problem, solve(problem, backend=NumpyBackend))
    x = problem.values
    dk, dv = np.zeros((1, S, 8)), np.zeros((1, S, 8))
    for start in range(0, S, rows):  # the oracle row by row of the score matrix: gradients of keys add up
        here = slice(start, start + rows)
        visible = np.arange(S) <= np.arange(start, start + rows)[:, None]
        want = oracle.reference(
            x["q"][:, here], x["k"], x["v"], x["dout"][:, here], x["dlse"][:, here], visible=visible
        )
        for name in ("out", "lse", "dq"):
            assert np.max(np.abs(getattr(got, name)[:, here] - getattr(want, name))) < 2e-5
        dk += want.dk
        dv += want.dv
    assert np.max(np.abs(got.dk - dk)) < 2e-5 * np.max(np.abs(dk))
    assert np.max(np.abs(got.dv - dv)) < 2e-5 * np.max(np.abs(dv))
