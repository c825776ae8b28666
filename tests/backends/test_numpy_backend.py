"""The NumPy kernels: against dense attention in extended precision, against themselves, and for memory."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ringcore_numpy import NumpyBackend, backend
from threadpoolctl import threadpool_limits

import ringcore as rc
from ringcore.layout import Layout
from ringcore.meter import Meter
from ringcore.partial import Partial, finish
from ringcore.protocols import ArraySpec, Backend, Stats
from ringcore.step import Step, local_step, lower
from ringcore.testing.drawn_mask import Call, DrawnMask
from tests.core.kernels import Case, cases, check, check_only_what_is_asked_for, same_bits, solve
from tests.libraries import LIBRARIES
from tests.profiles import examples

NUMPY, READ_ONLY = LIBRARIES["numpy"](), LIBRARIES["numpy-readonly"]()
WRT = ("q", "k", "v")
TILES = [(3, 4), (1, 1), (5, 2), (2, 7), (512, 512)]


@settings(max_examples=examples(150))
@given(case=cases(), tile=st.sampled_from(TILES))
def test_forward_and_backward_are_exact_in_tiles_of_any_shape(case: Case, tile: tuple[int, int]) -> None:
    check(case, solve(case, NumpyBackend(tile), NUMPY))


@settings(max_examples=examples(150))
@given(case=cases(poison=True), tile=st.sampled_from(TILES))
def test_a_nan_reaches_the_rows_that_see_it_and_no_others(case: Case, tile: tuple[int, int]) -> None:
    check(case, solve(case, NumpyBackend(tile), NUMPY))


@settings(max_examples=examples(60))
@given(case=cases(dtypes=("float16", "bfloat16")), tile=st.sampled_from(TILES))
def test_sixteen_bit_inputs_accumulate_in_float32(case: Case, tile: tuple[int, int]) -> None:
    check(case, solve(case, NumpyBackend(tile), NUMPY))


@settings(max_examples=examples(60))
@given(case=cases(), tile=st.sampled_from(TILES))
def test_read_only_inputs_give_the_same_bits(case: Case, tile: tuple[int, int]) -> None:
    assert same_bits(solve(case, NumpyBackend(tile), READ_ONLY), solve(case, NumpyBackend(tile), NUMPY))


# ---------------------------------------------------------------------- threads

BIG = Case(
    Layout.contiguous(length=150, ranks=1), Layout.zigzag(length=300, ranks=2),
    DrawnMask(Call("causal", (99,))), (2,), 4, 2, 32, 16,
)  # fmt: skip


def with_threads(threads: int, case: Case, tile: tuple[int, int] = (64, 32)) -> Any:
    with threadpool_limits(limits=threads, user_api="blas"):
        return solve(case, NumpyBackend(tile), NUMPY)


@pytest.mark.parametrize("heads", [(4, 2), (2, 1), (1, 1)])
def test_the_number_of_threads_changes_no_bit(heads: tuple[int, int]) -> None:
    """Whether each thread has a head of its own, or the tiles of one head are dealt out in waves."""
    case = replace(BIG, batch=(), H=heads[0], G=heads[1])
    check(case, one := with_threads(1, case))
    for threads in (2, 3, 3):
        assert same_bits(with_threads(threads, case), one)


# ---------------------------------------------------------------------- what is written to


def inputs(seed: int = 0, dtype: Any = np.float32, shape: tuple[int, ...] = (2, 9, 4)) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def step_of(L: int, mask: rc.Mask) -> Step:
    layout = Layout.contiguous(length=L, ranks=1)
    return local_step(lower(mask, np.arange(L), L), np.arange(L), layout, 0, 0.5, (), Meter())


def test_inputs_are_not_written_to_and_the_partial_is() -> None:
    q, k, v, dout = (inputs(seed) for seed in range(4))
    before = [x.tobytes() for x in (q, k, v, dout)]
    step, kernels = step_of(9, rc.causal()), NumpyBackend((4, 4))
    into = Partial(
        np.zeros((2, 9, 4), np.float32), np.full((2, 9), -np.inf, np.float32), np.zeros((2, 9), np.float32)
    )
    partial = kernels.attend(q, k, v, step, into)
    assert all(a is b for a, b in zip(partial, into, strict=True)), "in place: no second accumulator"
    out, _ = finish(np, partial)
    sums = {name: np.zeros((2, 9, 4), np.float32) for name in "qkv"}
    stats, delta = Stats(partial.m, partial.l), (out * dout).sum(-1)
    kept = [x.tobytes() for x in (*stats, delta, out)]
    grads = kernels.attend_backward(q, k, v, out, dout, stats, delta, step, WRT, sums)
    assert all(grads[name] is sums[name] and sums[name].any() for name in WRT)
    assert [x.tobytes() for x in (q, k, v, dout)] == before
    assert [x.tobytes() for x in (*stats, delta, out)] == kept


def test_partials_that_cannot_be_written_to_are_copied() -> None:
    """From the wire's views, or broadcast, they may come so."""
    q, k, v = (inputs(seed) for seed in range(3))
    step, kernels = step_of(9, rc.full()), NumpyBackend((4, 4))
    want = kernels.attend(q, k, v, step, None)
    zero = np.broadcast_to(np.float32(0), (2, 9, 4))
    nothing = Partial(
        zero, np.broadcast_to(np.float32(-np.inf), (2, 9)), np.broadcast_to(np.float32(0), (2, 9))
    )
    got = kernels.attend(q, k, v, step, nothing)
    assert all(np.array_equal(a, b) for a, b in zip(got, want, strict=True))
    assert not zero.any()
    stats, delta = Stats(want.m, want.l), np.zeros((2, 9), np.float32)
    plain = kernels.attend_backward(q, k, v, None, q, stats, delta, step, WRT, {})
    added = kernels.attend_backward(q, k, v, None, q, stats, delta, step, WRT, {"q": zero, "v": zero})
    assert all(np.array_equal(added[name], plain[name]) for name in WRT) and not zero.any()


# ---------------------------------------------------------------------- strides


def strided(x: np.ndarray) -> list[np.ndarray]:
    """The same numbers (H, L, D) as views with other strides."""
    wide = np.repeat(x, 2, axis=-1)
    return [
        np.ascontiguousarray(x.swapaxes(0, 1)).swapaxes(0, 1),  # seq_axis=-3
        np.ascontiguousarray(x.swapaxes(1, 2)).swapaxes(1, 2),  # columns
        np.repeat(x, 3, axis=1)[:, ::3],
        wide[..., ::2],
        np.ascontiguousarray(x[:, ::-1])[:, ::-1],
        np.asfortranarray(x),
    ]


@pytest.mark.parametrize("view", range(6))
def test_strided_inputs(view: int) -> None:
    """Within the bound, not bit for bit: BLAS may take another path for other strides."""
    q, k, v, dout = (inputs(seed, np.float64) for seed in range(4))
    step, kernels = step_of(9, rc.causal()), NumpyBackend((4, 4))

    def both(arrays: Any) -> list[np.ndarray]:
        q, k, v, dout = arrays
        partial = kernels.attend(q, k, v, step, None)
        out, lse = finish(np, partial)
        delta = (out * dout).sum(-1)
        stats = Stats(partial.m, partial.l)
        grads = kernels.attend_backward(q, k, v, out, dout, stats, delta, step, WRT, {})
        return [out, lse, *(grads[name] for name in WRT)]

    plain = [q, k, v, dout]
    for got, want in zip(both([strided(x)[view] for x in plain]), both(plain), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-13, atol=1e-14)


def peak_of(call: Any) -> int:
    call()  # caches, threads
    tracemalloc.start()
    try:
        call()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_arrays_with_the_heads_last_are_read_by_their_strides_not_copied() -> None:
    """seq_axis=-3 costs no byte more than seq_axis=-2: a copy of one array would be 2 MiB."""
    shape, mask, kernels = (1024, 8, 64), rc.window(8, 8), NumpyBackend((64, 64))
    q, k, v = (inputs(seed, np.float32, shape) for seed in range(3))
    heads_first = [np.ascontiguousarray(x.swapaxes(0, 1)) for x in (q, k, v)]

    def forward_and_backward(arrays: Any, seq_axis: int) -> Any:
        out, pullback = rc.attention_vjp(*arrays, mask=mask, seq_axis=seq_axis, backend=kernels)
        return out, *pullback(out)

    usual = peak_of(lambda: forward_and_backward(heads_first, -2))
    by_strides = peak_of(lambda: forward_and_backward((q, k, v), -3))
    assert by_strides < usual + q.nbytes // 4
    want = forward_and_backward(heads_first, -2)
    for a, b in zip(forward_and_backward((q, k, v), -3), want, strict=True):
        assert a.shape == shape
        np.testing.assert_allclose(a, b.swapaxes(0, 1), rtol=1e-4, atol=1e-5)


def test_no_more_than_a_few_tiles_of_scores_at_a_time() -> None:
    q = inputs(0, np.float32, (1, 2048, 8))
    step, kernels = step_of(2048, rc.full()), NumpyBackend((128, 128))

    def call() -> Any:
        partial = kernels.attend(q, q, q, step, None)
        stats = Stats(partial.m, partial.l)
        delta = np.zeros((1, 2048), np.float32)
        return kernels.attend_backward(q, q, q, None, q, stats, delta, step, WRT, {})

    with threadpool_limits(limits=2, user_api="blas"):
        peak = peak_of(call)
    tile, arrays = 128 * 128 * 4, q.nbytes
    assert peak < 2 * 6 * tile + 10 * arrays, "2 threads"
    assert peak < 2048 * 2048 * 4 / 8


# ---------------------------------------------------------------------- the rest


def test_meter_counts_the_tiles_that_were_computed() -> None:
    """A window of 3 in tiles of 4 x 4 over 12 tokens: the diagonal and one to its left."""
    meter, q = Meter(), inputs(0, np.float32, (2, 4, 12, 3))
    k, v = q[:, :2], inputs(1, np.float32, (2, 2, 12, 5))
    step, kernels = replace(step_of(12, rc.window(3, 0)), meter=meter), NumpyBackend((4, 4))
    partial = kernels.attend(q, k, v, step, None)
    tiles, pairs = 5 * 2 * 4, 16
    assert (meter.tiles, meter.scores, meter.flops) == (tiles, tiles * pairs, tiles * pairs * 2 * (3 + 5))
    dout, zero = inputs(2, np.float32, (2, 4, 12, 5)), np.zeros((2, 4, 12), np.float32)
    before = meter.flops
    kernels.attend_backward(q, k, v, None, dout, Stats(partial.m, partial.l), zero, step, WRT, {})
    assert (meter.tiles, meter.scores) == (2 * tiles, 2 * tiles * pairs)
    assert meter.flops - before == tiles * pairs * 2 * (3 * 3 + 2 * 5)


def test_only_the_gradients_asked_for_are_computed() -> None:
    check_only_what_is_asked_for(NumpyBackend((4, 3)))


def test_a_scale_that_overflows_with_q_alone_does_not_overflow_the_scores() -> None:
    """q times the scale is infinite, the scores are not: then these are scaled."""
    q, k, v = (np.full((1, 2, 1), x, np.float32) for x in (3e38, 1e-38, 1.0))
    step, kernels = replace(step_of(2, rc.full()), scale=10.0), NumpyBackend((4, 4))
    partial = kernels.attend(q, k, v, step, None)
    assert partial.m[0, 0] == pytest.approx(30, rel=1e-6) and (partial.l == 2).all()
    dout, delta = np.full((1, 2, 1), 1e-6, np.float32), np.full((1, 2), 5e-7, np.float32)
    grads = kernels.attend_backward(q, k, v, None, dout, Stats(*partial[1:]), delta, step, ("k",), {})
    ds = 0.5 * (1e-6 - 5e-7)  # of each of two pairs
    assert grads["k"][0, :, 0] == pytest.approx(2 * 10 * 3e38 * ds, rel=1e-5)


def test_it_is_what_numpy_arrays_get() -> None:
    assert rc.registry.backend_of(np.ones(1)) is backend
    assert isinstance(backend, Backend) and backend.name == "numpy"
    wire = backend.pack([np.arange(3.0), np.ones((2, 2), ml_dtypes.bfloat16)], "host")
    there = backend.blank([ArraySpec((3,), np.float64), ArraySpec((2, 2), ml_dtypes.bfloat16)], "host")
    there.buffer[:] = wire.buffer
    a, b = backend.unpack(there, np.ones(1))
    assert a.tolist() == [0, 1, 2] and b.dtype == ml_dtypes.bfloat16 and (b == 1).all()


def test_the_check_can_fail() -> None:
    case = replace(BIG, q_layout=Layout.contiguous(length=7, ranks=1))
    wrong = solve(replace(case, mask=DrawnMask(Call("causal", (98,)))), backend, NUMPY)
    with pytest.raises(AssertionError, match="must be within"):
        check(case, wrong)
