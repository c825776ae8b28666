"""One decoder layer, blockwise: attention over the ring, and all the rest in chunks of this rank's tokens.

After Liu and Abbeel, *Blockwise Parallel Transformer for Large Context Models*, 2023. All that follows
attention - output projection, residual, norm, feedforward, residual - is computed together for one chunk of
queries at a time, and in backward computed again, chunk by chunk. Nothing as wide as the feedforward layer
exists for more than one chunk, and from forward to backward `Kept` is all that a layer holds.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from pieces import join_heads, rms_norm_vjp, rotate, split_heads
from weights import Floats, Layer, Sizes

import ringcore as rc

ACTIVATION = "silu"


@dataclass(frozen=True)
class Place:
    """Where this rank's tokens are in the whole sequence, and how many of them are worked on at a time."""

    ring: rc.Ring
    layout: rc.Layout
    positions: NDArray[np.int64]
    chunk: int

    @classmethod
    def of(cls, ring: rc.Ring, layout: rc.Layout, chunk: int) -> Place:
        """The place of this rank."""
        if chunk < 1:
            raise ValueError(f"chunk must be at least 1 token. Got {chunk}.")
        return cls(ring, layout, layout.positions(ring.rank), chunk)

    @property
    def count(self) -> int:
        """L, how many tokens this rank has."""
        return len(self.positions)

    def chunks(self) -> Iterator[slice]:
        """Stretches of this rank's tokens; none if it has none."""
        for start in range(0, self.count, self.chunk):
            yield slice(start, min(start + self.chunk, self.count))


class Kept(NamedTuple):
    """What forward leaves for backward: L (C + H D + 2 H) numbers, and no other activation.

    Attributes
    ----------
    x : array, shape (L, C)
        The layer's input.
    attention : ringcore.Residuals
        ``out`` (H, L, D) and the statistics ``m`` and ``l`` (H, L). With them backward finds attention's
        weights again, tile by tile, and need not go round the ring for the output first.
    """

    x: Floats
    attention: rc.Residuals


def forward(layer: Layer, sizes: Sizes, x: Floats, place: Place) -> tuple[Floats, Kept]:
    """The layer's output for this rank's tokens. Collective.

    Parameters
    ----------
    layer : Layer
    sizes : Sizes
    x : array, shape (L, C)
    place : Place

    Returns
    -------
    y : array, shape (L, C)
    kept : Kept
    """
    q, k, v = _queries_keys_values(layer, sizes, x, place)
    out, saved = rc.attention(
        q, k, v, ring=place.ring, layout=place.layout, mask=rc.causal(), return_residuals=True
    )
    del q, k, v
    y = np.empty_like(x)
    for part in place.chunks():
        h = x[part] + join_heads(out[:, part]) @ layer.w_o
        n, _ = rms_norm_vjp(h, layer.norm_2)
        y[part] = h + rc.feedforward(layer.ff, n, activation=ACTIVATION, chunk=place.chunk)
    return y, Kept(x, saved)


def backward(layer: Layer, grad: Layer, sizes: Sizes, kept: Kept, dy: Floats, place: Place) -> Floats:
    """The cotangent of the layer's input; this rank's share of the parameters' goes to ``grad``. Collective.

    Parameters
    ----------
    layer, sizes, place
        As in `forward`.
    grad : Layer
        Gradients, added to in place.
    kept : Kept
    dy : array, shape (L, C)
        Cotangent of the output.

    Returns
    -------
    dx : array, shape (L, C)
    """
    dx = np.empty_like(dy)
    dout = np.empty((sizes.heads, len(dy), sizes.head_dim), dy.dtype)
    for part in place.chunks():
        dx[part], dout[:, part] = _after_attention(layer, grad, sizes, kept, dy[part], part, place.chunk)

    q, k, v = _queries_keys_values(layer, sizes, kept.x, place)
    dq, dk, dv = rc.attention_backward(
        q, k, v, kept.attention.out, kept.attention.stats, dout,
        ring=place.ring, layout=place.layout, mask=rc.causal(),
    )  # fmt: skip
    del q, k, v, dout

    for part in place.chunks():
        positions = place.positions[part]
        n, norm_pullback = rms_norm_vjp(kept.x[part], layer.norm_1)
        heads_q = join_heads(rotate(dq[:, part], positions, back=True))
        heads_k = join_heads(rotate(dk[:, part], positions, back=True))
        heads_v = join_heads(dv[:, part])
        grad.w_q[...] += n.T @ heads_q
        grad.w_k[...] += n.T @ heads_k
        grad.w_v[...] += n.T @ heads_v
        dn = heads_q @ layer.w_q.T + heads_k @ layer.w_k.T + heads_v @ layer.w_v.T
        dx_norm, dgain = norm_pullback(dn)
        dx[part] += dx_norm
        grad.norm_1[...] += dgain
    return dx


def _queries_keys_values(
    layer: Layer, sizes: Sizes, x: Floats, place: Place
) -> tuple[Floats, Floats, Floats]:
    """q (H, L, D), k and v (G, L, D): norm, projection and rotation, chunk by chunk."""
    length, dim = len(x), sizes.head_dim
    q = np.empty((sizes.heads, length, dim), x.dtype)
    k, v = (np.empty((sizes.kv_heads, length, dim), x.dtype) for _ in range(2))
    for part in place.chunks():
        positions = place.positions[part]
        n, _ = rms_norm_vjp(x[part], layer.norm_1)
        q[:, part] = rotate(split_heads(n @ layer.w_q, sizes.heads), positions)
        k[:, part] = rotate(split_heads(n @ layer.w_k, sizes.kv_heads), positions)
        v[:, part] = split_heads(n @ layer.w_v, sizes.kv_heads)
    return q, k, v


def _after_attention(
    layer: Layer, grad: Layer, sizes: Sizes, kept: Kept, dy: Floats, part: slice, chunk: int
) -> tuple[Floats, Floats]:
    """For one chunk: all that followed attention once more, and pulled back: dx (n, C), dout (H, n, D)."""
    out = join_heads(kept.attention.out[:, part])
    h = kept.x[part] + out @ layer.w_o
    n, norm_pullback = rms_norm_vjp(h, layer.norm_2)
    _, ff_pullback = rc.feedforward_vjp(layer.ff, n, activation=ACTIVATION, chunk=chunk)

    dff, dn = ff_pullback(dy)
    for total, term in zip(grad.ff, dff, strict=True):
        if term is not None:
            total[...] += term
    dh, dgain = norm_pullback(dn)
    dh += dy  # the residual around the feedforward layer
    grad.norm_2[...] += dgain
    grad.w_o[...] += out.T @ dh
    return dh, split_heads(dh @ layer.w_o.T, sizes.heads)  # dh: the residual around attention
