"""Feedforward layers by their definition, in float64. Imports nothing but NumPy."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

_erf = np.vectorize(math.erf, otypes=[np.float64])
_SQRT_2_OVER_PI = math.sqrt(2 / math.pi)


def _normal(a: Floats) -> Floats:
    return np.asarray(np.exp(-a * a / 2) / math.sqrt(2 * math.pi))


def _sigmoid(a: Floats) -> Floats:
    return np.asarray(0.5 * (1 + np.tanh(a / 2)))


def _inner(a: Floats) -> Floats:
    return np.asarray(np.tanh(_SQRT_2_OVER_PI * (a + 0.044715 * a**3)))


ACTIVATIONS: dict[str, tuple[Callable[[Floats], Floats], Callable[[Floats], Floats]]] = {
    "gelu": (
        lambda a: a * (1 + _erf(a / math.sqrt(2))) / 2,
        lambda a: (1 + _erf(a / math.sqrt(2))) / 2 + a * _normal(a),
    ),
    "gelu_tanh": (
        lambda a: a * (1 + _inner(a)) / 2,
        lambda a: (
            (1 + _inner(a)) / 2 + a * (1 - _inner(a) ** 2) * _SQRT_2_OVER_PI * (1 + 3 * 0.044715 * a**2) / 2
        ),
    ),
    "silu": (lambda a: a * _sigmoid(a), lambda a: _sigmoid(a) * (1 + a * (1 - _sigmoid(a)))),
    "relu": (lambda a: np.maximum(a, 0), lambda a: (a > 0).astype(np.float64)),
}
"""Name to (function, derivative). "gelu" is the exact form, with erf, "gelu_tanh" its usual approximation."""


def _field(layer: Any, name: str) -> Floats | None:
    value = layer.get(name) if isinstance(layer, dict) else getattr(layer, name, None)
    return None if value is None else np.asarray(value).astype(np.float64)


def _linear(x: Floats, weight: Floats, bias: Floats | None) -> Floats:
    return np.asarray(x @ weight if bias is None else x @ weight + bias)


def feedforward(layer: Any, x: Any, activation: str = "gelu") -> Floats:
    """``y = (act(x w_in + b_in) [* (x w_gate + b_gate)]) w_out + b_out``, token by token.

    Parameters
    ----------
    layer : dict or object with attributes
        ``w_in`` (D, F), ``w_out`` (F, D'), and where present ``b_in`` (F,), ``w_gate`` (D, F), ``b_gate``
        (F,), ``b_out`` (D',).
    x : array_like, (..., D)
    activation : {"gelu", "gelu_tanh", "silu", "relu"}

    Returns
    -------
    y : float64 array, (..., D')

    Examples
    --------
    >>> import numpy as np
    >>> feedforward({"w_in": np.eye(2), "w_out": np.ones((2, 1))}, [[1.0, -2.0]], "relu")
    array([[1.]])
    """
    y, _ = _with_gradient(layer, x, activation)
    return y


def feedforward_vjp(
    layer: Any, x: Any, dy: Any, activation: str = "gelu"
) -> tuple[dict[str, Floats], Floats]:
    """Gradient of ``sum(dy * y)``: with respect to the parameters present, by name, and to x."""
    _, gradient = _with_gradient(layer, x, activation)
    return gradient(np.asarray(dy).astype(np.float64))


def _with_gradient(
    layer: Any, x: Any, activation: str
) -> tuple[Floats, Callable[[Floats], tuple[dict[str, Floats], Floats]]]:
    w_in, w_gate, w_out = _field(layer, "w_in"), _field(layer, "w_gate"), _field(layer, "w_out")
    b_in, b_gate, b_out = _field(layer, "b_in"), _field(layer, "b_gate"), _field(layer, "b_out")
    if w_in is None or w_out is None:
        raise ValueError("layer must have w_in and w_out.")
    whole = np.asarray(x).astype(np.float64)
    rows = whole.reshape(-1, whole.shape[-1])
    act, slope = ACTIVATIONS[activation]
    a = _linear(rows, w_in, b_in)
    gate = np.ones_like(a) if w_gate is None else _linear(rows, w_gate, b_gate)
    hidden = act(a) * gate
    y = _linear(hidden, w_out, b_out).reshape(*whole.shape[:-1], w_out.shape[-1])

    def gradient(dy: Floats) -> tuple[dict[str, Floats], Floats]:
        d = dy.reshape(-1, dy.shape[-1])
        d_hidden = d @ w_out.T
        d_a, d_gate = d_hidden * gate * slope(a), d_hidden * act(a)
        d_x = d_a @ w_in.T
        grads = {"w_in": rows.T @ d_a, "w_out": hidden.T @ d}
        if b_in is not None:
            grads["b_in"] = d_a.sum(0)
        if b_out is not None:
            grads["b_out"] = d.sum(0)
        if w_gate is not None:
            grads["w_gate"] = rows.T @ d_gate
            d_x = d_x + d_gate @ w_gate.T
            if b_gate is not None:
                grads["b_gate"] = d_gate.sum(0)
        return grads, d_x.reshape(whole.shape)

    return y, gradient
