"""The reference against loops over single numbers and finite differences."""

from __future__ import annotations

import ast
import itertools
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import ringcore.testing
from ringcore.testing import oracle
from tests.testing import by_hand

ORACLE_FILES = ["oracle.py", "visibility.py", "feedforward_oracle.py"]


def inputs(seed=0, B=2, H=4, G=2, S_q=3, S_k=5, D=2, E=3):
    rng = np.random.default_rng(seed)
    shapes = [(B, H, S_q, D), (B, G, S_k, D), (B, G, S_k, E), (B, H, S_q, E), (B, H, S_q)]
    q, k, v, dout, dlse = (rng.standard_normal(shape) for shape in shapes)
    visible = rng.random((B, H, S_q, S_k)) < 0.5
    visible[0, 0, 0] = False  # sees nothing
    return q, k, v, dout, dlse, visible


# ------------------------------------------------------------------ what it may import


@pytest.mark.parametrize("name", ORACLE_FILES)
def test_the_oracle_imports_nothing_of_ringcore_but_itself(name):
    source = Path(ringcore.testing.__file__).with_name(name).read_text(encoding="utf-8")
    modules = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            modules.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            modules.add(node.module)
    own = {f"ringcore.testing.{file.removesuffix('.py')}" for file in ORACLE_FILES}
    standard = {"__future__", "collections.abc", "dataclasses", "math", "typing"}
    assert modules <= standard | own | {"numpy", "numpy.typing"}


# ------------------------------------------------------------------ forward


@pytest.mark.parametrize(("H", "G"), [(1, 1), (4, 4), (4, 2), (3, 1)])
def test_attention_is_a_softmax_over_the_keys_seen(H, G):
    q, k, v, _, _, visible = inputs(H=H, G=G)
    out, lse, p = oracle.attention(q, k, v, visible, 0.7)
    want_out, want_lse = by_hand.attention(q, k, v, visible, 0.7)
    np.testing.assert_allclose(out, want_out, rtol=1e-13, atol=1e-13)
    np.testing.assert_allclose(lse, want_lse, rtol=1e-13)
    assert (p[~visible] == 0).all()
    np.testing.assert_allclose(p.sum(-1), visible.any(-1), rtol=1e-14)


def test_defaults_are_all_keys_and_one_over_the_root_of_D():
    q, k, v, _, _, visible = inputs(D=4)
    got = oracle.attention(q, k, v)
    want = by_hand.attention(q, k, v, np.ones_like(visible), 0.5)
    np.testing.assert_allclose(got[0], want[0], rtol=1e-13)
    np.testing.assert_allclose(got[1], want[1], rtol=1e-13)


def test_huge_scores_neither_overflow_nor_lose_the_rest():
    q, k = np.array([[1.0]]), np.array([[1e5], [1e5], [-1e5]])
    out, lse, _ = oracle.attention(q, k, np.array([[2.0], [4.0], [99.0]]), None, 1.0)
    assert out.tolist() == [[3.0]]
    assert lse.tolist() == [1e5 + np.log(2)]


@pytest.mark.parametrize("lead", [None, (), (3,), (2, 3)])
def test_any_number_of_batch_dims(lead):
    rng = np.random.default_rng(1)
    heads = (lambda n: ()) if lead is None else (lambda n: (*lead, n))
    q, dout = rng.standard_normal((*heads(4), 3, 2)), rng.standard_normal((*heads(4), 3, 5))
    k, v = rng.standard_normal((*heads(2), 6, 2)), rng.standard_normal((*heads(2), 6, 5))
    want = oracle.reference(q, k, v, dout, None, oracle.causal(1))
    cond = oracle.conditions(q, k, v, dout, None, oracle.causal(1))
    reach = oracle.may_be_nonfinite(q, k, v, dout, None, oracle.causal(1))
    shapes = {"out": dout.shape, "lse": q.shape[:-1], "dq": q.shape, "dk": k.shape, "dv": v.shape}
    for name, shape in shapes.items():
        assert getattr(want, name).shape == getattr(cond, name).shape == shape
        assert np.broadcast_shapes(getattr(reach, name).shape, shape) == shape
    if lead:  # each batch row is a problem of its own
        for row in np.ndindex(*lead):
            one = oracle.reference(q[row], k[row], v[row], dout[row], None, oracle.causal(1))
            for name in shapes:
                np.testing.assert_array_equal(getattr(one, name), getattr(want, name)[row])


@pytest.mark.parametrize(("S_q", "S_k"), [(0, 0), (0, 3), (3, 0), (1, 1)])
def test_sequences_of_length_0_and_1(S_q, S_k):
    q, k, v, dout, dlse, _ = inputs(S_q=max(S_q, 1), S_k=max(S_k, 1))
    q, dout, dlse, k, v = q[:, :, :S_q], dout[:, :, :S_q], dlse[:, :, :S_q], k[:, :, :S_k], v[:, :, :S_k]
    got = oracle.reference(q, k, v, dout, dlse)
    assert [x.shape for x in got] == [dout.shape, dlse.shape, q.shape, k.shape, v.shape]
    if S_k == 0:
        assert (got.out == 0).all()
        assert (got.lse == -np.inf).all()
        assert (got.dq == 0).all()
    if S_q == 0:
        assert (got.dk == 0).all()
        assert (got.dv == 0).all()
    if S_q == S_k == 1:
        np.testing.assert_array_equal(got.out, np.repeat(v, 2, axis=1))


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float32])
def test_the_arithmetic_is_float64_whatever_comes_in(dtype):
    *arrays, visible = inputs()
    low = [x.astype(dtype) for x in arrays]
    got = oracle.reference(*low, visible, 0.7)
    want = oracle.reference(*(x.astype(np.float64) for x in low), visible, 0.7)
    for a, b in zip(got, want, strict=True):
        assert a.dtype == np.float64
        np.testing.assert_array_equal(a, b)


def test_the_arithmetic_can_be_float32():
    *arrays, visible = inputs()
    got = oracle.reference(*arrays, visible, 0.7, dtype=np.float32)
    want = oracle.reference(*arrays, visible, 0.7)
    for a, b in zip(got, want, strict=True):
        assert a.dtype == np.float32
        finite = np.isfinite(b)
        distance = np.abs(a[finite] - b[finite])
        assert 0 < distance.max() < 1e-5


# ------------------------------------------------------------------ gradient


@pytest.mark.parametrize(("H", "G"), [(1, 1), (2, 2), (4, 2), (3, 1)])
def test_gradients_are_finite_differences(H, G):
    q, k, v, dout, dlse, visible = inputs(H=H, G=G)
    sees = visible.any(-1)

    def value(q, k, v):
        out, lse = by_hand.attention(q, k, v, visible, 0.7)
        return np.sum(dout * out) + np.sum(dlse[sees] * lse[sees])

    got = oracle.attention_vjp(q, k, v, dout, dlse, visible, 0.7)
    want = (
        by_hand.gradient(lambda x: value(x, k, v), q),
        by_hand.gradient(lambda x: value(q, x, v), k),
        by_hand.gradient(lambda x: value(q, k, x), v),
    )
    for a, b in zip(got, want, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-8)
    assert (got[0][~sees] == 0).all()


def test_no_cotangent_of_lse_is_a_zero_one():
    q, k, v, dout, dlse, visible = inputs()
    got = oracle.attention_vjp(q, k, v, dout, None, visible)
    want = oracle.attention_vjp(q, k, v, dout, 0 * dlse, visible)
    for a, b in zip(got, want, strict=True):
        np.testing.assert_array_equal(a, b)


# ------------------------------------------------------------------ NaN and inf

POISONED = ["q", "k", "v", "dout", "dlse"]


@pytest.mark.parametrize("name", POISONED)
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_what_a_bad_number_cannot_reach_is_unchanged(name, bad):
    for seed in range(20):
        *arrays, visible = inputs(seed)
        clean = oracle.reference(*arrays, visible, 0.7)
        arrays[POISONED.index(name)][1, 1, 2, ...] = bad
        got = oracle.reference(*arrays, visible, 0.7)
        reach = oracle.may_be_nonfinite(*arrays, visible)
        for field in oracle.Results._fields:
            hit = np.broadcast_to(getattr(reach, field), getattr(got, field).shape)
            got_there, clean_there = getattr(got, field)[~hit], getattr(clean, field)[~hit]
            # Not bit by bit: where a bad number is about, sums are formed in another order.
            np.testing.assert_allclose(got_there, clean_there, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("name", POISONED)
def test_a_nan_reaches_exactly_the_rows_that_it_may_reach(name):
    hits = 0
    for seed in range(20):
        *arrays, visible = inputs(seed)
        arrays[POISONED.index(name)][1, 1, 2, ...] = np.nan
        got = oracle.reference(*arrays, visible, 0.7)
        reach = oracle.may_be_nonfinite(*arrays, visible)
        for field in oracle.Results._fields:
            result, hit = getattr(got, field), getattr(reach, field)
            bad = np.isnan(result) if field == "lse" else np.isnan(result).any(-1, keepdims=True)
            np.testing.assert_array_equal(bad, hit)
            hits += hit.sum()
    assert hits > 20


@pytest.mark.parametrize("name", POISONED)
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_what_must_be_lost_is_what_dense_attention_loses(name, bad):
    """Weights of these inputs are far from 0, so that nothing but an infinite score is left out."""
    hits = 0
    for seed in range(20):
        *arrays, visible = inputs(seed)
        arrays[POISONED.index(name)][(1, 1, 2, ...) if name == "dlse" else (1, 1, 2, 0)] = bad
        got = oracle.reference(*arrays, visible, 0.7)
        must = oracle.must_be_nonfinite(*arrays, visible, 0.7)
        reach = oracle.may_be_nonfinite(*arrays, visible)
        for field in oracle.Results._fields:
            result, hit = getattr(got, field), getattr(must, field)
            assert hit.shape == result.shape
            assert not (hit & ~getattr(reach, field)).any()
            assert not np.isfinite(result[hit]).any()
            if np.isnan(bad):
                blind = ~visible.any(-1) if field == "lse" else False
                np.testing.assert_array_equal(hit, ~np.isfinite(result) & ~np.asarray(blind))
            hits += hit.sum()
    assert hits > 20


def test_a_nan_in_a_value_is_demanded_in_its_column():
    one, v = np.zeros((3, 1)), np.array([[np.nan, 1.0], [2.0, 3.0], [4.0, 5.0]])
    must = oracle.must_be_nonfinite(one, one, v, visible=oracle.window(0, 1))
    np.testing.assert_array_equal(must.out, [[True, False], [False, False], [False, False]])
    assert not must.lse.any()
    assert must.dq is None


def test_what_has_no_weight_demands_nothing():
    """Weights of 0, by underflow or by a score of -inf: some arithmetic never multiplies by them."""
    q, v = np.ones((1, 1)), np.array([[np.inf], [1.0]])
    for score in (-1e4, -np.inf):
        must = oracle.must_be_nonfinite(q, np.array([[score], [0.0]]), v, np.ones((1, 1)), scale=1.0)
        assert not must.out.any()
        assert not must.lse.any()
    must = oracle.must_be_nonfinite(q, np.array([[np.inf], [0.0]]), v, scale=1.0)
    assert must.out.all()
    assert must.lse.all()
    nothing_seen = oracle.must_be_nonfinite(q * np.nan, v, v, q, q[0], np.zeros((1, 2), bool))
    assert not any(x.any() for x in nothing_seen)


def test_the_demand_of_arrays_without_heads_and_with_groups():
    *arrays, visible = inputs(H=4, G=2)
    arrays[2][...] = np.nan
    must = oracle.must_be_nonfinite(*arrays, visible)
    assert [getattr(must, n).shape for n in ("dk", "dv")] == [arrays[1].shape, arrays[2].shape]
    assert must.out.any()
    assert must.dk.any()
    assert not must.dv.any()


def test_a_nan_that_nobody_sees_reaches_nothing():
    q, k, v, dout, dlse, visible = inputs()
    visible[..., 2] = False
    clean = oracle.reference(q, k, v, dout, dlse, visible)
    k[:, :, 2], v[:, :, 2] = np.nan, np.inf
    for a, b in zip(oracle.reference(q, k, v, dout, dlse, visible), clean, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-13)
    for cond in oracle.conditions(q, k, v, dout, dlse, visible):
        assert np.isfinite(cond).all()


# ------------------------------------------------------------------ condition numbers


def by_the_formulas(q, k, v, dout, dlse, visible, scale):
    """The conditions of one head, pair by pair, as the docstring states them."""
    out, lse, p = oracle.attention(q, k, v, visible, scale)
    S_q, S_k = visible.shape
    sigma = abs(scale) * np.einsum("id,jd->ij", abs(q), abs(k))
    c_out, c_lse = np.zeros_like(out), np.zeros(S_q)
    c_dq, c_dk, c_dv = np.zeros_like(q), np.zeros_like(k), np.zeros_like(v)
    for i in range(S_q):
        seen = [j for j in range(S_k) if visible[i, j]]
        if not seen:
            continue
        sbar = sum(p[i, j] * sigma[i, j] for j in seen)
        w = {j: p[i, j] * (1 + sigma[i, j] + sbar) + 2.0**-102 for j in seen}
        c_out[i] = sum(w[j] * abs(v[j]) for j in seen) + sbar * abs(out[i])
        c_lse[i] = abs(lse[i]) + sbar + 1
        for j in seen:
            delta = abs(dout[i]) @ abs(v[j]) + abs(dout[i]) @ abs(out[i]) + abs(dlse[i])
            c = w[j] * delta + p[i, j] * (abs(dout[i]) @ c_out[i])
            c_dq[i] += abs(scale) * c * abs(k[j])
            c_dk[j] += abs(scale) * c * abs(q[i])
            c_dv[j] += w[j] * abs(dout[i])
    return c_out, c_lse, c_dq, c_dk, c_dv


@pytest.mark.parametrize("scale", [0.7, -0.7])
def test_conditions_are_the_formulas(scale):
    q, k, v, dout, dlse, visible = inputs(B=1, H=1, G=1)
    got = oracle.conditions(q, k, v, dout, dlse, visible, scale)
    heads = (x[0, 0] for x in (q, k, v, dout, dlse, visible))
    for a, b in zip(got, by_the_formulas(*heads, scale), strict=True):
        np.testing.assert_allclose(a[0, 0], b, rtol=1e-12)


def test_conditions_of_shared_heads_are_sums_over_them():
    q, k, v, dout, dlse, visible = inputs(H=6, G=2)
    shared = oracle.conditions(q, k, v, dout, dlse, visible)
    apart = oracle.conditions(q, k.repeat(3, 1), v.repeat(3, 1), dout, dlse, visible)
    for name in ("out", "lse", "dq"):
        np.testing.assert_allclose(getattr(shared, name), getattr(apart, name), rtol=1e-14)
    for name in ("dk", "dv"):
        each = getattr(apart, name)
        summed = each.reshape(each.shape[0], 2, 3, *each.shape[2:]).sum(2)
        np.testing.assert_allclose(getattr(shared, name), summed, rtol=1e-14)


def test_conditions_without_dout_are_those_of_the_forward_pass():
    q, k, v, dout, dlse, visible = inputs()
    every = oracle.conditions(q, k, v, dout, dlse, visible)
    forward = oracle.conditions(q, k, v, visible=visible)
    np.testing.assert_array_equal(forward.out, every.out)
    np.testing.assert_array_equal(forward.lse, every.lse)
    assert forward.dq is forward.dk is forward.dv is None


def test_rounding_errors_are_a_few_u_times_the_condition_and_not_much_less():
    """They bound the errors, and are at most 30 times what is seen: a bound that can fail."""
    worst = dict.fromkeys(oracle.Results._fields, 0.0)
    for seed, spread in itertools.product(range(10), [0.1, 1, 10, 100]):
        q, k, v, dout, dlse, visible = inputs(seed, S_q=12, S_k=12, D=4)
        arrays = [x.astype(np.float32) for x in (q * spread, k, v, dout, dlse)]
        want = oracle.reference(*arrays, visible, 0.5)
        cond = oracle.conditions(*arrays, visible, 0.5)
        got = oracle.reference(*arrays, visible, 0.5, dtype=np.float32)
        for name in worst:
            sees = getattr(cond, name) > 0
            error = np.abs(getattr(got, name)[sees] - getattr(want, name)[sees])
            worst[name] = max(worst[name], float(np.max(error / (2.0**-24 * getattr(cond, name)[sees]))))
    for name, units in worst.items():
        assert 8 / 30 < units < 8, (name, units)


def test_the_cotangent_of_lse_has_a_condition_of_its_own():
    """With dout = 0 all of dS is p * dlse: without the term of dlse the condition would be 0."""
    q, k, v, dout, dlse, visible = (x.astype(np.float32) for x in inputs())
    visible = visible.astype(bool)
    args = (q, k, v, 0 * dout, dlse, visible, 0.5)
    want, cond = oracle.reference(*args), oracle.conditions(*args)
    got = oracle.reference(*args, dtype=np.float32)
    for name in ("dq", "dk"):
        error = np.abs(getattr(got, name) - getattr(want, name))
        assert error.max() > 0
        assert (error <= 8 * 2.0**-24 * getattr(cond, name)).all()
