"""Contract, line 7: what is computed in which dtype."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import ringcore as rc
from ringcore.dtypes import dtype_name
from ringcore.testing import Call, DrawnMask, Problem, check_attention, solve
from tests.contract.problems import (
    CHOICES,
    Changed,
    assert_same_error,
    bits,
    in_order,
    kernels,
    layouts_of,
    on_every_rank,
    variant,
    whole,
)
from tests.libraries import LIBRARIES

ROUNDED = {"float16": np.float16, "bfloat16": ml_dtypes.bfloat16}
HAVE_16_BITS = [(name, dtype) for name in ("numpy", "torch") for dtype in ROUNDED] + [("jax", "bfloat16")]
CAUSAL = DrawnMask(Call("causal"))


def pairs(library, dtype):
    """Problems of 16-bit inputs, and the same numbers as float32; few shapes for JAX."""
    jax = library.name == "jax"
    for ranks in {"numpy": range(1, 9), "torch": (2, 3, 8), "jax": (1, 3)}[library.name]:
        side, way = CHOICES[ranks % 4]
        even = rc.Layout.contiguous(length=4 * ranks, ranks=ranks)
        short = Problem(
            xp=library.xp, q_layout=even if jax else layouts_of(23, ranks)[ranks % 4], mask=CAUSAL,
            dtype=dtype, heads=(2, 1), D=2 if jax else 9, E=2 if jax else 5, side=side, way=way, seed=ranks,
            spread=(1.0, 10.0)[ranks % 2],
        )  # fmt: skip
        yield short, variant(short, dtype="float32", change=lambda values, p=short: values.update(p.values))


@pytest.mark.parametrize(("name", "dtype"), HAVE_16_BITS)
def test_line_07_16_bit_results_are_those_of_float32_rounded_once(name, dtype):
    library = LIBRARIES[name]()
    for short, long in pairs(library, dtype):
        kernel = kernels(library)[short.ranks // 2 % len(kernels(library))]
        results = solve(short, backend=kernel)
        check_attention(short, results)
        got, want = in_order(short, results), whole(long, kernel)
        assert bits(got.lse, library) == bits(want.lse, library)
        for result in ("out", "dq", "dk", "dv"):
            rounded = library.numpy(getattr(want, result)).astype(ROUNDED[dtype])
            assert dtype_name(getattr(got, result).dtype) == dtype
            assert bits(getattr(got, result), library) == rounded.tobytes(), (result, short)


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16"])
def test_line_07_every_result_has_the_dtype_of_the_inputs_and_lse_that_of_the_sums(xp, dtype):
    if xp.name == "array-api-strict" and dtype in ROUNDED:
        dtype = "float32"
    if xp.name == "jax" and dtype in ("float16", "float64"):
        dtype = "bfloat16"  # already compiled
    if xp.name == "jax":
        layout, sizes = rc.Layout.contiguous(length=8, ranks=2), {"D": 2, "E": 2}
    else:
        layout, sizes = rc.Layout.from_lengths([4, 0, 3]), {"D": 3, "E": 4}
    for side, way in CHOICES[:: 3 if xp.name == "jax" else 1]:
        problem = Problem(
            xp=xp.xp, q_layout=layout, heads=(2, 1), dtype=dtype, side=side, way=way, mask=CAUSAL, **sizes
        )
        for result in solve(problem):
            assert {dtype_name(x.dtype) for x in (result.out, result.dq, result.dk, result.dv)} == {dtype}
            assert dtype_name(result.lse.dtype) == ("float64" if dtype == "float64" else "float32")


@pytest.mark.parametrize("name", ["numpy", "array-api-strict", "torch"])
def test_line_07_float64_stays_float64(name):
    """Numbers that float32 cannot tell apart make all the difference."""
    library = LIBRARIES[name]()

    def barely_different(values):
        values["k"][...] = 1 + 2.0**-40 * np.arange(values["k"].shape[-2])[:, None]
        values["q"][...] = 2.0**40
        values["v"][...] = 1 + 2.0**-45 * values["v"]

    for ranks in (1, 2, 5):
        layout = rc.Layout.zigzag(length=12, ranks=ranks)
        problem = Changed(xp=library.xp, q_layout=layout, D=1, E=2, scale=1.0, change=barely_different)
        out = library.numpy(in_order(problem, solve(problem)).out)
        assert np.all(np.abs(out - problem.reference.out) <= 4e-15)
        assert np.ptp(problem.reference.out) < 1e-12
        in_float32 = problem.values["v"].astype(np.float32)
        assert np.all(in_float32 == 1)


def test_line_07_float32_is_float32_in_torch_even_when_its_user_allows_less():
    torch = pytest.importorskip("torch", reason="torch is not installed")
    library = LIBRARIES["torch"]()
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("medium")
    try:
        layout = rc.Layout.contiguous(length=96, ranks=2)
        problem = Problem(xp=library.xp, q_layout=layout, dtype="float32", heads=(2, 1), D=64, E=64)
        check_attention(problem, solve(problem))
    finally:
        torch.set_float32_matmul_precision(before)


@pytest.mark.parametrize("odd_one", ["q", "k", "v", "dout"])
@pytest.mark.parametrize("ranks", [1, 3])
def test_line_07_mixed_dtypes_are_an_error(ranks, odd_one):
    x = {name: np.zeros((2, 4, 3), np.float32) for name in ("q", "k", "v", "dout")}
    x[odd_one] = x[odd_one].astype(np.float16)

    def call(ring):
        _, pullback = rc.attention_vjp(x["q"], x["k"], x["v"], ring=ring)
        messages = ring.traffic.messages
        try:
            return pullback(x["dout"])
        finally:
            ring.traffic.messages -= messages  # those of the forward pass, which was sound

    assert_same_error(on_every_rank(ranks, call), TypeError, "dtype", "float16", "float32")


def test_line_07_ranks_that_differ_in_dtype_are_an_error():
    def call(ring):
        x = np.zeros((2, 4, 3), (np.float32, np.float64)[ring.rank % 2])
        return rc.attention(x, x, x, ring=ring)

    assert_same_error(on_every_rank(4, call), ValueError, "same dtype", "float32", "float64", "rank 1")


@pytest.mark.parametrize("dtype", ["int32", "bool", "complex64", "longdouble"])
def test_line_07_other_dtypes_are_an_error(dtype):
    x = np.zeros((1, 4, 3), dtype)
    raised = on_every_rank(2, lambda ring: rc.attention(x, x, x, ring=ring))
    assert_same_error(raised, TypeError, "float64, float32, float16 or bfloat16")
