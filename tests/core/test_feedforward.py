"""Feedforward layers against the float64 oracle, with a bound that follows from the dtype."""

from __future__ import annotations

import itertools
import tracemalloc
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ringcore_numpy import NumpyBackend

from ringcore.activation import ACTIVATIONS as BUILT_IN
from ringcore.activation import Activation
from ringcore.dtypes import accumulation_name, unit_roundoff
from ringcore.feedforward import FeedForward, feedforward, feedforward_vjp
from ringcore.hidden import PlainHidden
from ringcore.layout import Layout
from ringcore.registry import backend_of
from ringcore.ring import run_ranks
from ringcore.testing import feedforward_oracle as oracle
from ringcore.testing.arrays import from_numpy, half_ulp, round_to, to_numpy
from tests.backends.both import need_compiled
from tests.profiles import examples

ACTIVATIONS = ["gelu", "gelu_tanh", "silu", "relu"]
KINDS = list(itertools.product([False, True], [False, True]))  # gated, bias
SHAPES = {"w_in": "DF", "w_out": "FO", "b_in": "F", "b_out": "O", "w_gate": "DF", "b_gate": "F"}


@pytest.fixture(params=["plain", "compiled"])
def kernels(request, monkeypatch) -> str:
    """Which steps between the products NumPy arrays get."""
    if request.param == "compiled":
        need_compiled()
    backend = NumpyBackend(compiled=request.param == "compiled")
    monkeypatch.setitem(
        feedforward.__globals__,
        "backend_of",
        lambda x: backend if isinstance(x, np.ndarray) else backend_of(x),
    )
    return request.param


def draw_layer(rng, D, F, out, gated=True, bias=True, dtype="float64") -> dict:
    """Parameters as float64 arrays that the dtype holds exactly; biases are not zero."""
    size = {"D": D, "F": F, "O": out}
    names = ["w_in", "w_out"] + ["b_in", "b_out"] * bias + ["w_gate"] * gated + ["b_gate"] * (gated and bias)
    return {
        name: round_to(rng.normal(size=[size[c] for c in SHAPES[name]]) / size[SHAPES[name][0]] ** 0.5, dtype)
        for name in names
    }


def dtypes_of(xp) -> list[str]:
    sixteen = [] if xp.name == "array-api-strict" else ["float16", "bfloat16"]
    return ["float64", "float32", *sixteen]


def given_to(xp, layer: dict, dtype: str) -> FeedForward:
    return FeedForward(**{name: make(xp, p, dtype) for name, p in layer.items()})


def make(xp, x, dtype):
    out = from_numpy(xp.xp, x, dtype)
    if xp.name == "numpy-readonly":
        out.flags.writeable = False
    return out


def conditions(layer: dict, x, dy, activation: str) -> tuple[dict, np.ndarray, np.ndarray]:
    """What u is amplified by at most, per element of the gradients by name, dx and y.

    Sums of absolute values in place of sums; 1.2 bounds the first and second derivatives of every
    activation (relu, whose second derivative is a jump, is drawn away from it).
    """
    a = {name: np.abs(p) for name, p in layer.items()}
    rows, d = np.abs(x.reshape(-1, x.shape[-1])), np.abs(dy.reshape(-1, dy.shape[-1]))
    z = rows @ a["w_in"] + a.get("b_in", 0)
    gate = rows @ a["w_gate"] + a.get("b_gate", 0) if "w_gate" in a else np.ones_like(z)
    act = 1.2 * z
    dh = d @ a["w_out"].T
    dz, dgate = dh * gate * 1.2 * (2 + z), dh * 2 * act
    hidden = 2 * act * gate
    dx = dz @ a["w_in"].T + (dgate @ a["w_gate"].T if "w_gate" in a else 0)
    grads = {
        "w_in": rows.T @ dz, "w_out": hidden.T @ d, "w_gate": rows.T @ dgate,
        "b_in": dz.sum(0), "b_out": d.sum(0), "b_gate": dgate.sum(0),
    }  # fmt: skip
    y = hidden @ a["w_out"] + a.get("b_out", 0)
    return grads, dx.reshape(x.shape), y.reshape(dy.shape)


def assert_close(got, want, cond, dtype, terms, name, accumulation=None):
    """|err| <= terms u cond + half an ulp of the rounding at the end."""
    got, want = to_numpy(got).astype(np.float64), np.asarray(want)
    assert got.shape == want.shape, name
    bound = terms * unit_roundoff(accumulation or accumulation_name(dtype)) * cond
    bound = bound + np.maximum(half_ulp(want, dtype), half_ulp(got, dtype))
    excess = np.max(np.abs(got - want) - bound, initial=-np.inf)
    assert excess <= 0, f"{name}: above the bound by {excess:.3g}"


def check(layer: dict, x, dy, activation, y, dlayer, dx, dtype, p_dtype=None) -> None:
    """Compare everything with the oracle; the number of terms of all sums bounds their rounding."""
    tokens = x.size // max(x.shape[-1], 1)
    terms = sum(layer["w_in"].shape) + layer["w_out"].shape[1] + tokens + 16
    want, want_dx = oracle.feedforward_vjp(layer, x, dy, activation)
    cond, cond_dx, cond_y = conditions(layer, x, dy, activation)
    assert_close(y, oracle.feedforward(layer, x, activation), cond_y, dtype, terms, "y")
    assert_close(dx, want_dx, cond_dx, dtype, terms, "dx")
    accumulation = accumulation_name(dtype)
    for name in FeedForward._fields:
        if name in layer:
            assert_close(
                getattr(dlayer, name), want[name], cond[name], p_dtype or dtype, terms, name, accumulation
            )
        else:
            assert getattr(dlayer, name) is None


# ---------------------------------------------------------------------- values


@pytest.mark.parametrize(("gated", "bias"), KINDS)
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_value_and_gradients_agree_with_the_oracle_in_every_library_and_dtype(xp, activation, gated, bias):
    rng = np.random.default_rng(1)
    for dtype in dtypes_of(xp):
        layer = draw_layer(rng, 6, 20, 5, gated, bias, dtype)
        x, dy = round_to(rng.normal(size=(2, 7, 6)), dtype), round_to(rng.normal(size=(2, 7, 5)), dtype)
        params, x_there = given_to(xp, layer, dtype), make(xp, x, dtype)
        y, pullback = feedforward_vjp(params, x_there, activation=activation, chunk=5)
        dlayer, dx = pullback(make(xp, dy, dtype))
        check(layer, x, dy, activation, y, dlayer, dx, dtype)
        for array in (y, dx, *(p for p in dlayer if p is not None)):
            assert type(array) is type(x_there) and array.dtype == x_there.dtype, "case 11"
        again = feedforward(params, x_there, activation=activation, chunk=5)
        assert np.array_equal(to_numpy(again), to_numpy(y)), "the two calls are one computation"


@st.composite
def cases(draw):
    D, F, out = (draw(st.integers(1, 9)) for _ in range(3))
    batch = draw(st.sampled_from([(), (1,), (3,), (2, 2), (0,)]))
    shape = (*batch, draw(st.integers(0, 12)))
    gated, bias = draw(st.booleans()), draw(st.booleans())
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    scale, dtype = draw(st.sampled_from([0.1, 1.0, 30.0])), draw(st.sampled_from(["float64", "float32"]))
    x, dy = scale * rng.normal(size=(*shape, D)), rng.normal(size=(*shape, out))
    return (draw_layer(rng, D, F, out, gated, bias, dtype), round_to(x, dtype), round_to(dy, dtype), dtype,
            draw(st.sampled_from(ACTIVATIONS)), draw(st.integers(1, 40)))  # fmt: skip


def test_any_shape_and_any_chunk(kernels):
    seen = Counter()

    @settings(max_examples=examples(300))
    @given(cases())
    def property_(case):
        layer, x, dy, dtype, activation, chunk = case
        tokens = x.size // x.shape[-1]
        seen.update({
            "no token": tokens == 0, "one chunk": 0 < tokens <= chunk, "many chunks": tokens > chunk,
            "last chunk shorter": tokens > chunk and tokens % chunk, "plain": "w_gate" not in layer,
            "no bias": "b_in" not in layer, "batch": x.ndim > 2, "float32": dtype == "float32",
        })  # fmt: skip
        params = FeedForward(**{name: p.astype(dtype) for name, p in layer.items()})
        y, pullback = feedforward_vjp(params, x.astype(dtype), activation=activation, chunk=chunk)
        check(layer, x, dy, activation, y, *pullback(dy.astype(dtype)), dtype)

    property_()
    assert len(seen) == 8 and min(seen.values()) > 0, seen


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("gated", [False, True])
def test_gradients_are_those_of_the_value_by_finite_differences(activation, gated):
    rng = np.random.default_rng(3)
    layer = draw_layer(rng, 3, 4, 2, gated)
    x, dy, h = rng.normal(size=(5, 3)), rng.normal(size=(5, 2)), 1e-5
    _, pullback = feedforward_vjp(FeedForward(**layer), x, activation=activation, chunk=2)
    dlayer, dx = pullback(dy)

    def loss() -> float:
        return float(np.sum(dy * feedforward(FeedForward(**layer), x, activation=activation)))

    for name, array, gradient in [("x", x, dx), *((n, p, getattr(dlayer, n)) for n, p in layer.items())]:
        for index in np.ndindex(array.shape):
            old = array[index]
            array[index] = old + h
            up = loss()
            array[index] = old - h
            slope = (up - loss()) / (2 * h)
            array[index] = old
            assert gradient[index] == pytest.approx(slope, abs=1e-8), (name, index)


def test_7_sixteen_bit_inputs_accumulate_in_float32_and_round_once():
    """A sum that 16 bits cannot hold on the way: 4096 ones, added to a hidden value each."""
    layer = FeedForward(w_in=np.ones((1, 4099), np.float16), w_out=np.ones((4099, 1), np.float16))
    x = np.ones((3, 1), np.float16)
    y, pullback = feedforward_vjp(layer, x, activation="relu")
    assert y.dtype == np.float16 and np.all(y == np.float16(4099))
    dlayer, dx = pullback(np.ones((3, 1), np.float16))
    assert np.all(dx == np.float16(4099)) and np.all(dlayer.w_in == 3)


def test_7_gradient_sums_over_chunks_are_rounded_once():
    tokens = 4099  # float16 stops counting at 2048
    layer = FeedForward(w_in=np.ones((1, 1), np.float16), w_out=np.ones((1, 1), np.float16))
    x = np.ones((tokens, 1), np.float16)
    dlayer, _ = feedforward_vjp(layer, x, activation="relu", chunk=1)[1](x)
    assert dlayer.w_in == np.float16(tokens) and dlayer.w_out == np.float16(tokens)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_parameters_may_have_the_accumulation_dtype(xp, dtype):
    if dtype not in dtypes_of(xp):
        return  # the standard has no 16-bit dtypes
    rng = np.random.default_rng(4)
    layer = draw_layer(rng, 4, 9, 3, dtype="float32")
    x, dy = round_to(rng.normal(size=(8, 4)), dtype), round_to(rng.normal(size=(8, 3)), dtype)
    y, pullback = feedforward_vjp(given_to(xp, layer, "float32"), make(xp, x, dtype))
    dlayer, dx = pullback(make(xp, dy, dtype))
    check(layer, x, dy, "gelu", y, dlayer, dx, dtype, p_dtype="float32")
    assert str(dlayer.w_in.dtype).endswith("float32") and str(dx.dtype).endswith(dtype)


def test_own_activation_as_object_or_pair(xp):
    rng = np.random.default_rng(5)
    x, dy = rng.normal(size=(6, 3)), rng.normal(size=(6, 3))
    layer = {"w_in": rng.normal(size=(3, 4)), "w_out": rng.normal(size=(4, 3))}
    for own in (Activation(lambda z: z * z, lambda z: 2 * z), (lambda z: z * z, lambda z: 2 * z)):
        y, pullback = feedforward_vjp(given_to(xp, layer, "float64"), make(xp, x, "float64"), activation=own)
        _, dx = pullback(make(xp, dy, "float64"))
        z = x @ layer["w_in"]
        assert to_numpy(y) == pytest.approx(z**2 @ layer["w_out"], rel=1e-12)
        want = (dy @ layer["w_out"].T * 2 * z) @ layer["w_in"].T
        assert to_numpy(dx) == pytest.approx(want, rel=1e-12)


def test_no_tokens_give_zero_gradients(xp):
    layer = given_to(xp, draw_layer(np.random.default_rng(6), 3, 4, 2), "float32")
    y, pullback = feedforward_vjp(layer, make(xp, np.zeros((2, 0, 3)), "float32"))
    assert tuple(y.shape) == (2, 0, 2)
    dlayer, dx = pullback(y)
    assert tuple(dx.shape) == (2, 0, 3)
    for gradient, p in zip(dlayer, layer, strict=True):
        assert gradient.shape == p.shape and not np.any(to_numpy(gradient))


def test_6_strided_inputs_give_the_same_as_their_copies(kernels):
    rng = np.random.default_rng(7)
    layer = FeedForward(**draw_layer(rng, 4, 6, 4))
    base = rng.normal(size=(5, 8, 3))
    for x in (base.transpose(0, 2, 1)[..., ::2], np.broadcast_to(base[:1, :1, :1], (2, 3, 4)), base[:, 4:].T):
        x = x[..., :4]
        layer_x = FeedForward(*(p[: x.shape[-1]] if p.shape[0] == 4 and p.ndim == 2 else p for p in layer))
        y, pullback = feedforward_vjp(layer_x, x, chunk=4)
        z, pull_copy = feedforward_vjp(layer_x, np.ascontiguousarray(x), chunk=4)
        assert np.array_equal(y, z)
        assert np.array_equal(pullback(y.T.copy().T)[1], pull_copy(y)[1])


def test_heads_between_sequence_and_features():
    rng = np.random.default_rng(8)
    layer = FeedForward(**draw_layer(rng, 4, 6, 4))
    x = rng.normal(size=(2, 5, 3, 4))
    y = feedforward(layer, x, seq_axis=-3)
    assert np.array_equal(y, feedforward(layer, x.reshape(2, 15, 4)).reshape(x.shape))


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_nan_in_a_token_stays_in_its_row(kernels, activation):
    rng = np.random.default_rng(9)
    layer = FeedForward(**draw_layer(rng, 4, 6, 4))
    x = rng.normal(size=(9, 4))
    clean, pull_clean = feedforward_vjp(layer, x, activation=activation, chunk=4)
    x[5, 2] = np.nan
    y, pullback = feedforward_vjp(layer, x, activation=activation, chunk=4)
    assert np.all(np.isnan(y[5])) and np.array_equal(np.delete(y, 5, 0), np.delete(clean, 5, 0))
    dx, dx_clean = pullback(clean)[1], pull_clean(clean)[1]
    assert np.array_equal(np.delete(dx, 5, 0), np.delete(dx_clean, 5, 0))


@pytest.mark.parametrize("gated", [False, True])
@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_4_a_fused_activation_gives_nan_and_infinity_where_the_plain_one_does(dtype, activation, gated):
    need_compiled()
    ends = [np.nan, np.inf, -np.inf, -1e30, -1000.0, -0.0, 0.0, 1000.0, 1e30]
    z, gate, dh = (np.array(x, dtype) for x in np.meshgrid(ends, [1.0, np.nan], [-2.0, np.inf]))
    z, gate, dh = (x.reshape(3, -1) for x in (z, gate, dh))
    means = PlainHidden(BUILT_IN[activation]), NumpyBackend(compiled=True).hidden(activation)
    results = []
    for hidden in means:
        factors = gate.copy() if gated else None
        with np.errstate(all="ignore"):
            h = hidden.forward(z.copy(), None, factors, None)
            results.append([h.copy(), *hidden.backward(z.copy(), None, factors, None, dh.copy())])
    for plain, fused in zip(*results, strict=True):
        assert (plain is None and fused is None) or np.array_equal(plain, fused, equal_nan=True)


def test_the_result_does_not_depend_on_the_chunk_beyond_rounding(kernels):
    rng = np.random.default_rng(17)
    layer = draw_layer(rng, 5, 11, 4)
    x, dy = rng.normal(size=(700, 5)), rng.normal(size=(700, 4))
    for chunk in (None, 1, 3, 256, 10_000):  # by default, and with a last chunk of 700 - 512
        y, pullback = feedforward_vjp(FeedForward(**layer), x, chunk=chunk)
        check(layer, x, dy, "gelu", y, *pullback(dy), "float64")


def test_the_default_chunk_is_the_backend_s_for_the_hidden_width_or_2048(xp):
    rows = []

    def watched(z):
        rows.append(z.shape[0])
        return z

    F, tokens = 1 << 14, 2100  # so wide that NumPy's chunk is its smallest, on any usual machine
    layer = FeedForward.init(1, F, seed=0, bias=False, dtype="float32", xp=xp.xp)
    x = make(xp, np.zeros((tokens, 1)), "float32")
    if isinstance(x, np.ndarray):
        chunk = NumpyBackend().feedforward_chunk(F, 4)
        assert chunk < 2048
    else:
        chunk = 2048
    feedforward(layer, x, activation=(watched, watched))
    assert rows[0] == chunk and sum(rows) == tokens


# ---------------------------------------------------------------------- memory and purity


def test_8_inputs_are_never_written_to_and_residuals_are_the_inputs(xp, kernels):
    rng = np.random.default_rng(10)
    layer = given_to(xp, draw_layer(rng, 4, 6, 3), "float32")
    x, dy = make(xp, rng.normal(size=(9, 4)), "float32"), make(xp, rng.normal(size=(9, 3)), "float32")
    before = [to_numpy(a).tobytes() for a in (*layer, x, dy)]
    _, pullback = feedforward_vjp(layer, x, chunk=4)
    first, second = pullback(dy), pullback(dy)
    assert [to_numpy(a).tobytes() for a in (*layer, x, dy)] == before
    for one, two in zip((*first[0], first[1]), (*second[0], second[1]), strict=True):
        assert np.array_equal(to_numpy(one), to_numpy(two)), "a pullback may be called again"


def test_hidden_arrays_never_hold_more_tokens_than_a_chunk(xp):
    rows = []

    def watched(z):
        rows.append(z.shape[0])
        return z

    rng = np.random.default_rng(11)
    layer = given_to(xp, draw_layer(rng, 3, 5, 3), "float64")
    x = make(xp, rng.normal(size=(3, 7, 3)), "float64")
    y, pullback = feedforward_vjp(layer, x, activation=(watched, watched), chunk=8)
    assert rows == [8, 8, 5]
    pullback(y)
    assert max(rows) == 8 and sum(rows) == 21 * 3  # forward, and both again in backward


def peak(call) -> int:
    tracemalloc.start()
    try:
        result = call()
        return tracemalloc.get_traced_memory()[1] - sum(a.nbytes for a in result if a is not None)
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_peak_memory_is_that_of_a_chunk_whatever_the_length(activation, kernels):
    D, F, chunk = 4, 256, 128
    hidden = chunk * F * 8
    layer = FeedForward.init(D, F, seed=0, gated=True, dtype="float64")
    y, pullback = feedforward_vjp(layer, np.ones((2, D)), activation=activation)
    pullback(y)  # compiles, or reads from disk, what there is to compile
    forward, backward = [], []
    for L in (10 * chunk, 40 * chunk):
        x = np.random.default_rng(0).normal(size=(L, D))
        options = {"activation": activation, "chunk": chunk}
        forward.append(peak(lambda x=x, options=options: [feedforward(layer, x, **options)]))
        _, pullback = feedforward_vjp(layer, x, **options)

        def run(pullback=pullback, x=x):
            dlayer, dx = pullback(x)
            return [*dlayer, dx]

        backward.append(peak(run))
    most = {"plain": (11, 13), "compiled": (2.5, 3.5)}[kernels]
    assert max(forward) <= most[0] * hidden and max(backward) <= most[1] * hidden, "temporaries of one chunk"
    assert forward[1] - forward[0] <= hidden / 4 and backward[1] - backward[0] <= hidden / 4, "flat in L"


# ---------------------------------------------------------------------- over ranks


@pytest.mark.parametrize("loss", ["sum", "mean"])
@pytest.mark.parametrize("P", [1, 2, 3, 5, 8])
def test_5_loss_over_the_sharded_sequence_has_the_dense_gradient(P, loss):
    S, rng = 6, np.random.default_rng(12)  # P > S: some ranks hold nothing
    layer, x = draw_layer(rng, 4, 7, 3), rng.normal(size=(2, S, 4))
    dy = np.full((2, S, 3), 1.0 if loss == "sum" else 1 / (2 * S * 3))
    for layout in (Layout.zigzag(length=S, ranks=P), Layout.striped(length=S, ranks=P)):

        def fn(ring, layout=layout):
            mine = layout.shard(x, ring.rank)
            y, pullback = feedforward_vjp(FeedForward(**layer), mine, chunk=3, ring=ring)
            share = feedforward_vjp(FeedForward(**layer), mine, chunk=3)[1]
            cotangent = layout.shard(dy, ring.rank)
            return y, *pullback(cotangent), share(cotangent)[0]

        results = run_ranks(P, fn, timeout=60)
        y, dx = layout.unshard([r[0] for r in results]), layout.unshard([r[2] for r in results])
        for _, dlayer, _, _ in results:
            check(layer, x, dy, "gelu", y, dlayer, dx, "float64")
            for mine, first in zip(dlayer, results[0][1], strict=True):
                assert mine.tobytes() == first.tobytes(), "the same bits on every rank"
        shares = FeedForward(*(sum(arrays) for arrays in zip(*(r[3] for r in results), strict=True)))
        check(layer, x, dy, "gelu", y, shares, dx, "float64")


def test_sums_over_ranks_are_rounded_once():
    """Each share is 2049 = 2048 + 1 in float16 only after the sum in float32: 3 x 2049 = 6147 -> 6148."""
    layer = FeedForward(w_in=np.ones((1, 1), np.float16), w_out=np.ones((1, 1), np.float16))

    def fn(ring):
        x = np.ones((2049, 1), np.float16)
        return feedforward_vjp(layer, x, activation="relu", ring=ring)[1](x)[0].w_in

    assert all(w == np.float16(6147) for w in run_ranks(3, fn, timeout=60))
    assert np.float16(3) * np.float16(2049) != np.float16(6147), "the test can fail"


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda layer, x: (layer, x[:, :2], {}), "w_in must have shape (2, 7)"),
        (lambda layer, x: (layer, x, {"activation": "silu"}), "all ranks must pass the same activation"),
        (lambda layer, x: (layer._replace(b_in=None), x, {}), "all ranks must pass the same layer"),
        (lambda layer, x: (layer, x, {"chunk": 0}), "chunk must be at least 1. Got 0."),
    ],
)
def test_9_a_wrong_argument_on_one_rank_raises_the_same_error_on_all(wrong, message):
    layer = FeedForward(**draw_layer(np.random.default_rng(13), 4, 7, 3))

    def fn(ring):
        x = np.ones((5, 4))
        params, x, options = wrong(layer, x) if ring.rank == 1 else (layer, x, {})
        with pytest.raises((ValueError, TypeError)) as caught:
            feedforward_vjp(params, x, ring=ring, **options)
        return type(caught.value), str(caught.value)

    errors = set(run_ranks(3, fn, timeout=60))
    assert len(errors) == 1 and message in next(iter(errors))[1]


def test_9_a_wrong_cotangent_on_one_rank_raises_the_same_error_on_all():
    layer = FeedForward(**draw_layer(np.random.default_rng(14), 4, 7, 3))

    def fn(ring):
        y, pullback = feedforward_vjp(layer, np.ones((5, 4)), ring=ring)
        with pytest.raises(ValueError, match="dy must have the shape") as caught:
            pullback(y if ring.rank else y[:4])
        return str(caught.value)

    assert len(set(run_ranks(3, fn, timeout=60))) == 1


# ---------------------------------------------------------------------- JAX


def test_32_under_jit_and_as_a_pytree():
    jax = pytest.importorskip("jax", reason="jax is not installed")
    layer = FeedForward.init(4, 8, seed=0, gated=True, dtype="float64", xp=jax.numpy)
    x = jax.numpy.asarray(np.random.default_rng(15).normal(size=(2, 5, 4)))
    assert len(jax.tree.leaves(layer)) == 6

    def loss(layer, x):
        return jax.numpy.sum(feedforward(layer, x, chunk=4) ** 2)

    eager, (dlayer, dx) = feedforward(layer, x, chunk=4), jax.jit(jax.grad(loss, (0, 1)))(layer, x)
    assert np.allclose(
        jax.jit(lambda p, x: feedforward(p, x, chunk=4))(layer, x), eager, rtol=1e-13, atol=1e-14
    )

    @jax.jit
    def ours(layer, x):
        y, pullback = feedforward_vjp(layer, x, chunk=4)
        return pullback(2 * y)

    for mine, theirs in zip(jax.tree.leaves(ours(layer, x)), jax.tree.leaves((dlayer, dx)), strict=True):
        assert np.allclose(mine, theirs, rtol=1e-11, atol=1e-13)


def test_torch_differentiates_the_forward_call_itself():
    torch = pytest.importorskip("torch", reason="torch is not installed")
    rng = np.random.default_rng(16)
    layer = FeedForward(**{n: torch.asarray(p) for n, p in draw_layer(rng, 3, 5, 2).items()})
    x = torch.asarray(rng.normal(size=(7, 3)), dtype=torch.float64).requires_grad_()
    feedforward(layer, x, chunk=3).sum().backward()
    _, dx = feedforward_vjp(layer, x.detach(), chunk=3)[1](torch.ones((7, 2), dtype=torch.float64))
    assert torch.allclose(x.grad, dx, rtol=1e-11)


# ---------------------------------------------------------------------- random layers


def test_the_same_seed_makes_the_same_layer_in_every_library(xp):
    here = FeedForward.init(5, 7, 3, seed=1, gated=True)
    there = FeedForward.init(5, 7, 3, seed=1, gated=True, xp=xp.xp)
    for mine, theirs in zip(here, there, strict=True):
        theirs = xp.numpy(theirs)
        assert np.array_equal(mine, theirs) and mine.dtype == theirs.dtype == np.float32
    other = FeedForward.init(5, 7, 3, seed=2, gated=True)
    assert not np.array_equal(here.w_in, other.w_in)
    assert [p.shape for p in here] == [(5, 7), (7, 3), (7,), (3,), (5, 7), (7,)]


def test_init_keeps_the_scale_of_its_input():
    layer = FeedForward.init(64, 4096, seed=np.random.default_rng(0), dtype="float64")
    assert layer.w_in.std() == pytest.approx(1 / 8, rel=0.02)
    assert layer.w_out.std() == pytest.approx(1 / 64, rel=0.02)
    assert FeedForward.init(3, 4, seed=0, bias=False)[2:] == (None, None, None, None)
    assert not np.any(layer.b_in) and layer.w_gate is None and layer.w_out.shape == (4096, 64)


# ---------------------------------------------------------------------- wrong arguments

X = np.zeros((5, 4))
GOOD = FeedForward.init(4, 6, 3, seed=0, gated=True, dtype="float64")


def swapped(**changes) -> FeedForward:
    return GOOD._replace(**changes)


WRONG = [
    (lambda: feedforward(tuple(GOOD), X), TypeError, "layer must be a FeedForward. Got tuple."),
    (lambda: feedforward(GOOD, [[1.0] * 4]), TypeError, "x must be an array. Got list."),
    (lambda: feedforward(GOOD, X[0]), ValueError, "axis must be one of the 1 axes of x."),
    (lambda: feedforward(GOOD, X, seq_axis=-1), ValueError, "seq_axis must not be the last axis"),
    (lambda: feedforward(GOOD, X, seq_axis=2), ValueError, "Got axis=2."),
    (lambda: feedforward(GOOD, X.astype(int)), TypeError, "x must be float64, float32, float16 or bfloat16."),
    (lambda: feedforward(GOOD, X[:, :3]), ValueError, "w_in must have shape (3, 6). Got (4, 6)"),
    (lambda: feedforward(swapped(w_in=None), X), ValueError, "w_in must be given. Got None."),
    (lambda: feedforward(swapped(w_out=None), X), ValueError, "w_out must be given. Got None."),
    (lambda: feedforward(swapped(w_gate=None), X), ValueError, "b_gate must come with w_gate."),
    (lambda: feedforward(swapped(w_out=GOOD.w_out.T), X), ValueError, "w_out must have shape (6, 6)"),
    (lambda: feedforward(swapped(w_in=GOOD.b_in), X), ValueError, "w_in must have 2 axes. Got shape (6,)."),
    (lambda: feedforward(swapped(b_in=GOOD.b_out), X), ValueError, "b_in must have shape (6,). Got (3,)"),
    (lambda: feedforward(swapped(b_out=GOOD.b_in), X), ValueError, "b_out must have shape (3,). Got (6,)"),
    (lambda: feedforward(swapped(b_gate=X), X), ValueError, "b_gate must have shape (6,). Got (5, 4)"),
    (
        lambda: feedforward(swapped(b_in=[0.0] * 6), X),
        TypeError,
        "x and layer must be arrays of one library.",
    ),
    (lambda: feedforward(GOOD, X.astype("f4")), TypeError, "must share one dtype, float32 for x of float32."),
    (lambda: feedforward(swapped(b_in=np.zeros(6, "f4")), X), TypeError, "mixed dtypes are not promoted."),
    (lambda: feedforward(GOOD, X.astype("f2")), TypeError, "float16 or float32 for x of float16."),
    (
        lambda: feedforward(GOOD, X, activation="tanh"),
        ValueError,
        "activation must be one of gelu, gelu_tanh",
    ),
    (
        lambda: feedforward(GOOD, X, activation=np.tanh),
        ValueError,
        "a pair of callables (value, derivative).",
    ),
    (lambda: feedforward(GOOD, X, activation=(np.tanh, 1)), ValueError, "a pair of callables"),
    (lambda: feedforward(GOOD, X, activation=["gelu"]), ValueError, "activation must be one of"),
    (lambda: feedforward(GOOD, X, chunk=0), ValueError, "chunk must be at least 1. Got 0."),
    (lambda: feedforward(GOOD, X, chunk=2.0), TypeError, "chunk must be an integer. Got 2.0."),
    (lambda: feedforward(GOOD, X, chunk=True), TypeError, "chunk must be an integer. Got True."),
    (lambda: feedforward_vjp(GOOD, X)[1](X), ValueError, "dy must have the shape and dtype of y, (5, 3)"),
    (lambda: feedforward_vjp(GOOD, X)[1](np.zeros((5, 3), "f4")), ValueError, "Got (5, 3) and float32."),
    (lambda: feedforward_vjp(GOOD, X)[1](1.0), TypeError, "dy must be an array. Got float."),
]


@pytest.mark.parametrize(("call", "error", "message"), WRONG, ids=[row[2][:40] for row in WRONG])
def test_wrong_arguments_say_the_rule_what_was_got_and_the_cure(call, error, message):
    with pytest.raises(error) as caught:
        call()
    text = str(caught.value)
    assert message in text
    assert text.count(". ") >= 2 and text.endswith("."), "rule, then 'Got ...', then the cure"


def test_arrays_of_two_libraries_are_an_error():
    strict = pytest.importorskip("array_api_strict", reason="array_api_strict is not installed")
    with pytest.raises(TypeError, match=r"arrays of one library\. Got x Array, w_in ndarray"):
        feedforward(GOOD, strict.zeros((5, 4)))
