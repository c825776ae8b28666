"""The small parts of a decoder layer, each with its pullback written by hand.

As in ringcore: ``f_vjp(...) -> (value, pullback)``, and the pullback takes the value's cotangent to those of
the arguments. All of them work token by token, so that they can be used on any chunk of a sequence.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from weights import Floats

EPS = 1e-6
"""Added to the mean square in `rms_norm_vjp`."""


def rms_norm_vjp(x: Floats, gain: Floats) -> tuple[Floats, Callable[[Floats], tuple[Floats, Floats]]]:
    """Root-mean-square norm of every token (Zhang and Sennrich, 2019).

    Parameters
    ----------
    x : array, shape (L, C)
    gain : array, shape (C,)

    Returns
    -------
    y : array, shape (L, C)
        ``x / sqrt(mean(x^2) + EPS) * gain``.
    pullback : callable
        ``pullback(dy) -> (dx, dgain)``.

    Examples
    --------
    >>> y, pullback = rms_norm_vjp(np.array([[3.0, 4.0]]), np.ones(2))
    >>> y.round(4)
    array([[0.8485, 1.1314]])
    >>> dx, dgain = pullback(y)  # along x itself nothing changes
    >>> np.allclose(dx, 0, atol=1e-6)
    True
    """
    scale = 1 / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + EPS)
    unit = x * scale

    def pullback(dy: Floats) -> tuple[Floats, Floats]:
        dunit = dy * gain
        dx = scale * (dunit - unit * np.mean(dunit * unit, axis=-1, keepdims=True))
        return dx, np.sum(dy * unit, axis=0)

    return unit * gain, pullback


def rotate(x: Floats, positions: NDArray[np.int64], back: bool = False) -> Floats:
    """Rotary positions (Su et al., 2021): turn pair i of features by the angle position x 10000^(-2i/D).

    Scores of rotated queries and keys depend on the difference of their positions. There is nothing to
    learn and nothing to store: a rank computes the angles of its own *global* positions.

    Parameters
    ----------
    x : array, shape (heads, L, D), D even
    positions : array of int64, shape (L,)
        Global, as from `ringcore.Layout.positions`.
    back : bool
        Turn the other way: the inverse, and, a rotation being orthogonal, the pullback.

    Examples
    --------
    >>> x = np.ones((1, 2, 2))
    >>> rotate(x, np.array([0, 1])).round(4)
    array([[[ 1.    ,  1.    ],
            [-0.3012,  1.3818]]])
    """
    half = x.shape[-1] // 2
    angles = positions[:, None] * 10_000.0 ** (
        -np.arange(half) / half
    )  # float64 however long the sequence is
    cos, sin = (f(angles).astype(x.dtype) for f in (np.cos, np.sin))
    if back:
        sin = -sin
    first, second = x[..., :half], x[..., half:]
    return np.concatenate([first * cos - second * sin, first * sin + second * cos], axis=-1)


def split_heads(x: Floats, heads: int) -> Floats:
    """(L, heads D) as (heads, L, D), a view."""
    return x.reshape(x.shape[0], heads, x.shape[1] // heads).swapaxes(0, 1)


def join_heads(x: Floats) -> Floats:
    """(heads, L, D) as (L, heads D); the inverse of `split_heads`, and its pullback."""
    heads, length, dim = x.shape
    joined: Floats = x.swapaxes(0, 1).reshape(length, heads * dim)
    return joined


def cross_entropy_vjp(logits: Floats, labels: NDArray[Any]) -> tuple[float, Callable[[], Floats]]:
    """Sum over tokens of ``-log softmax(logits)[label]``, natural logarithm.

    Parameters
    ----------
    logits : array, shape (L, BASES)
    labels : array of integers, shape (L,)
        A label that is no base counts for nothing.

    Returns
    -------
    total : float
        Summed in float64.
    pullback : callable
        ``pullback() -> dlogits``, of the sum.
    """
    counted = labels < logits.shape[1]
    rows, columns = np.flatnonzero(counted), labels[counted]
    shifted = logits - logits.max(axis=-1, keepdims=True)
    masses = np.exp(shifted)
    sums = masses.sum(axis=-1, keepdims=True)
    log_p = shifted[rows, columns] - np.log(sums[rows, 0])

    def pullback() -> Floats:
        dlogits: Floats = masses / sums
        dlogits[rows, columns] -= 1
        dlogits[~counted] = 0
        return dlogits

    return -float(log_p.sum(dtype=np.float64)), pullback
