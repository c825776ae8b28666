"""The model of examples/transformer once more, for one process: dense softmax attention, JAX's derivatives.

It shares no code with the example: whole score matrices, complex numbers for rotary positions, no chunks, no
ranks, no pullback written by hand. Parameters go by their names.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

Arrays = Mapping[str, Any]


def loss_and_gradient(
    weights: Arrays, tokens: np.ndarray, labels: np.ndarray, heads: int, dtype: str
) -> tuple[float, dict[str, np.ndarray]]:
    """Mean loss over labels < 4, and its gradient by name; computed in ``dtype``."""
    given = {name: jnp.asarray(np.asarray(array, dtype)) for name, array in weights.items()}
    value, grads = jax.jit(jax.value_and_grad(_loss), static_argnums=3)(given, tokens, labels, heads)
    assert value.dtype == dtype
    return float(value), {name: np.asarray(grad) for name, grad in grads.items()}


def _loss(w: Arrays, tokens: np.ndarray, labels: np.ndarray, heads: int) -> Any:
    x = w["embed"][tokens]
    for layer in sorted({name.split(".")[1] for name in w if name.startswith("layers.")}):
        p = {name.split(".", 2)[2]: a for name, a in w.items() if name.startswith(f"layers.{layer}.")}
        x = x + _attention(p, _norm(x, p["norm_1"]), heads)
        n = _norm(x, p["norm_2"])
        x = x + (jax.nn.silu(n @ p["ff.w_in"]) * (n @ p["ff.w_gate"])) @ p["ff.w_out"]
    log_p = jax.nn.log_softmax(_norm(x, w["norm"]) @ w["head"])
    known = labels < 4
    return -jnp.sum(log_p[jnp.arange(len(labels)), jnp.minimum(labels, 3)] * known) / jnp.sum(known)


def _norm(x: Any, gain: Any) -> Any:
    return x * jax.lax.rsqrt(jnp.square(x).mean(-1, keepdims=True) + 1e-6) * gain


def _attention(p: Arrays, n: Any, heads: int) -> Any:
    length, width = n.shape
    dim = width // heads
    q, k, v = ((n @ p[name]).reshape(length, -1, dim) for name in ("w_q", "w_k", "w_v"))
    q, k = _turned(q), _turned(k)
    k, v = (jnp.repeat(x, heads // x.shape[1], axis=1) for x in (k, v))
    scores = jnp.einsum("ihd,jhd->hij", q, k) / jnp.sqrt(jnp.asarray(dim, n.dtype))
    scores = jnp.where(np.tri(length, dtype=bool), scores, -jnp.inf)
    return jnp.einsum("hij,jhd->ihd", jax.nn.softmax(scores), v).reshape(length, width) @ p["w_o"]


def _turned(x: Any) -> Any:
    """Features i and i + D/2 as a complex number, times exp(i position / 10000^(2i/D))."""
    half = x.shape[-1] // 2
    position, pair = np.arange(x.shape[0])[:, None, None], np.arange(half)
    turn = np.exp(1j * position / 10_000.0 ** (2 * pair / (2 * half)))
    turn = jnp.asarray(turn.astype(np.result_type(x.dtype, np.complex64)))
    z = (x[..., :half] + 1j * x[..., half:]) * turn
    return jnp.concatenate([z.real, z.imag], axis=-1)
