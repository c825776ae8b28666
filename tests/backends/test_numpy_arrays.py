"""What NumPy kernels, plain and compiled, do with arrays: what they write to, read by strides, allocate."""

from __future__ import annotations

import subprocess
import sys
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ringcore_numpy import NumpyBackend
from threadpoolctl import threadpool_limits

import ringcore as rc
from ringcore.partial import Partial, finish
from ringcore.protocols import Stats
from tests.backends.both import inputs, step_of

ROOT = Path(__file__).parents[2]
WRT = ("q", "k", "v")


# ---------------------------------------------------------------------- what is written to


def test_inputs_are_not_written_to_and_the_partial_is(compiled: bool) -> None:
    q, k, v, dout = (inputs(seed) for seed in range(4))
    before = [x.tobytes() for x in (q, k, v, dout)]
    step, kernels = step_of(9, rc.causal()), NumpyBackend((4, 4), compiled)
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


def test_partials_that_cannot_be_written_to_are_copied(compiled: bool) -> None:
    """From the wire's views, or broadcast, they may come so."""
    q, k, v = (inputs(seed) for seed in range(3))
    step, kernels = step_of(9, rc.full()), NumpyBackend((4, 4), compiled)
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
def test_strided_inputs(compiled: bool, view: int) -> None:
    """Within the bound, not bit for bit: BLAS may take another path for other strides."""
    q, k, v, dout = (inputs(seed, np.float64) for seed in range(4))
    step, kernels = step_of(9, rc.causal()), NumpyBackend((4, 4), compiled)

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


def test_arrays_with_the_heads_last_are_read_by_their_strides_not_copied(compiled: bool) -> None:
    """seq_axis=-3 costs no byte more than seq_axis=-2: a copy of one array would be 2 MiB."""
    shape, mask, kernels = (1024, 8, 64), rc.window(8, 8), NumpyBackend((64, 64), compiled)
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


def test_no_more_than_a_few_tiles_of_scores_at_a_time(compiled: bool) -> None:
    q = inputs(0, np.float32, (1, 2048, 8))
    step, kernels = step_of(2048, rc.full()), NumpyBackend((128, 128), compiled)

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


RESIDENT = """
import sys
sys.path[:0], compiled = eval(sys.argv[1]), sys.argv[2] == "True"
import numpy as np
from threadpoolctl import threadpool_limits
import ringcore as rc
from ringcore_numpy import NumpyBackend

def peak():
    with open("/proc/self/status") as status:
        return next(1024 * int(line.split()[1]) for line in status if line.startswith("VmHWM"))

def run(L):
    q = np.ones((1, L, 8), np.float32)
    rc.attention_vjp(q, q, q, mask=rc.causal(), backend=NumpyBackend((512, 256), compiled))[1](q)

with threadpool_limits(limits=2):
    run(1024)
    before = peak()
    run(8192)
print(peak() - before)
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="no /proc/self/status")
def test_nor_where_the_allocator_is_not_pythons(compiled: bool) -> None:
    """Compiled code allocates past `tracemalloc`. The process grows by no 256 MiB of scores."""
    roots = [str(ROOT), str(ROOT / "backends"), str(ROOT / "transports")]
    program = [sys.executable, "-c", RESIDENT, repr(roots), str(compiled)]
    run = subprocess.run(program, capture_output=True, text=True, timeout=60, check=True)
    assert int(run.stdout) < 16 << 20
