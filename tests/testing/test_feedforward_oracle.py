"""The feedforward reference against its formula written out, and against finite differences."""

from __future__ import annotations

import math
from types import SimpleNamespace

import numpy as np
import pytest

from ringcore.testing import oracle
from ringcore.testing.feedforward_oracle import ACTIVATIONS
from tests.testing import by_hand

SCALARS = {
    "gelu": lambda a: a * 0.5 * math.erfc(-a / math.sqrt(2)),
    "gelu_tanh": lambda a: 0.5 * a * (1 + math.tanh(math.sqrt(2 / math.pi) * (a + 0.044715 * a**3))),
    "silu": lambda a: a / (1 + math.exp(-a)),
    "relu": lambda a: max(a, 0.0),
}


def layer(gated, biased, seed=0):
    rng = np.random.default_rng(seed)
    names = {"w_in": (3, 5), "w_out": (5, 2)}
    if gated:
        names["w_gate"] = (3, 5)
    if biased:
        names |= {"b_in": (5,), "b_out": (2,)} | ({"b_gate": (5,)} if gated else {})
    return {name: rng.standard_normal(shape) for name, shape in names.items()}


def test_every_activation_is_tested():
    assert set(ACTIVATIONS) == set(SCALARS)


@pytest.mark.parametrize("activation", SCALARS)
def test_activations_and_their_derivatives(activation):
    act, slope = ACTIVATIONS[activation]
    a = np.linspace(-4, 4, 30)  # 0 excepted: relu has no derivative there
    np.testing.assert_allclose(act(a), [SCALARS[activation](x) for x in a], rtol=1e-12, atol=1e-15)
    differences = (act(a + 1e-6) - act(a - 1e-6)) / 2e-6
    np.testing.assert_allclose(slope(a), differences, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("activation", SCALARS)
@pytest.mark.parametrize("gated", [False, True])
@pytest.mark.parametrize("biased", [False, True])
def test_value_and_gradients(activation, gated, biased):
    parameters = layer(gated, biased)
    rng = np.random.default_rng(1)
    x, dy = rng.standard_normal((2, 4, 3)), rng.standard_normal((2, 4, 2))
    zeros = SimpleNamespace(b_in=np.zeros(5), b_gate=np.zeros(5), b_out=np.zeros(2))

    def formula(p, x):
        get = lambda name: p.get(name, getattr(zeros, name, None))  # noqa: E731
        hidden = np.vectorize(SCALARS[activation])(x @ p["w_in"] + get("b_in"))
        if gated:
            hidden = hidden * (x @ p["w_gate"] + get("b_gate"))
        return hidden @ p["w_out"] + get("b_out")

    np.testing.assert_allclose(
        oracle.feedforward(parameters, x, activation), formula(parameters, x), rtol=1e-12
    )
    grads, dx = oracle.feedforward_vjp(parameters, x, dy, activation)
    assert set(grads) == set(parameters)
    want = by_hand.gradient(lambda t: np.sum(dy * formula(parameters, t)), x)
    np.testing.assert_allclose(dx, want, rtol=1e-6, atol=1e-8)
    for name, value in parameters.items():
        want = by_hand.gradient(lambda t, name=name: np.sum(dy * formula({**parameters, name: t}, x)), value)
        np.testing.assert_allclose(grads[name], want, rtol=1e-6, atol=1e-8)


def test_parameters_may_be_attributes_and_float32():
    parameters = {name: x.astype(np.float32) for name, x in layer(True, True).items()}
    x = np.ones((4, 3), np.float32)
    by_name = oracle.feedforward(parameters, x)
    np.testing.assert_array_equal(oracle.feedforward(SimpleNamespace(**parameters), x), by_name)
    assert by_name.dtype == np.float64


def test_no_token():
    assert oracle.feedforward(layer(False, True), np.zeros((0, 3))).shape == (0, 2)
