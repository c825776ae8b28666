"""The whole model on a ring: letters in, the loss of the next base out, and its gradient."""

from __future__ import annotations

import blockwise
import numpy as np
from blockwise import Place
from dna import BASES, LETTERS, Shard
from pieces import cross_entropy_vjp, rms_norm_vjp
from weights import Floats, Sizes, Weights, zeros


def loss(weights: Weights, sizes: Sizes, shard: Shard, place: Place) -> float:
    """Mean loss in nats over all labels of the whole sequence that are bases. Collective."""
    x = weights.embed[shard.tokens]
    for layer in weights.layers:
        x, _ = blockwise.forward(layer, sizes, x, place)
    total = 0.0
    for part in place.chunks():
        n, _ = rms_norm_vjp(x[part], weights.norm)
        total += cross_entropy_vjp(n @ weights.head, shard.labels[part])[0]
    return _mean(total, shard, place)[0]


def loss_and_gradient(weights: Weights, sizes: Sizes, shard: Shard, place: Place) -> tuple[float, Weights]:
    """The loss, and its gradient: the same bits on every rank. Collective.

    Notes
    -----
    Each rank forms the gradient of the *sum* over its own tokens' losses; attention's backward has
    already brought in what they mean for the keys and values of other ranks. The sum over ranks is divided
    once, by the number of labels of the whole sequence.
    """
    kept = []
    x = weights.embed[shard.tokens]
    for layer in weights.layers:
        x, left = blockwise.forward(layer, sizes, x, place)
        kept.append(left)

    grads = zeros(sizes, weights.flat.dtype.name)
    total, dx = _head(weights, grads, x, shard, place)
    del x
    for layer, grad in zip(reversed(weights.layers), reversed(grads.layers), strict=True):
        dx = blockwise.backward(layer, grad, sizes, kept.pop(), dx, place)
    for part in place.chunks():
        one_hot = np.eye(LETTERS, dtype=dx.dtype)[shard.tokens[part]]
        grads.embed[...] += one_hot.T @ dx[part]

    mean, count = _mean(total, shard, place)
    grads.flat[...] = place.ring.allreduce(grads.flat) / grads.flat.dtype.type(max(count, 1))
    return mean, grads


def _head(weights: Weights, grads: Weights, x: Floats, shard: Shard, place: Place) -> tuple[float, Floats]:
    """Sum of this rank's losses, and the cotangent of ``x``; forward and backward of one chunk at once."""
    total, dx = 0.0, np.empty_like(x)
    for part in place.chunks():
        n, norm_pullback = rms_norm_vjp(x[part], weights.norm)
        part_loss, loss_pullback = cross_entropy_vjp(n @ weights.head, shard.labels[part])
        total += part_loss
        dlogits = loss_pullback()
        grads.head[...] += n.T @ dlogits
        dx[part], dgain = norm_pullback(dlogits @ weights.head.T)
        grads.norm[...] += dgain
    return total, dx


def _mean(total: float, shard: Shard, place: Place) -> tuple[float, int]:
    """Over all ranks: mean loss, and the number of labels that count."""
    mine = np.array([total, np.count_nonzero(shard.labels < BASES)], np.float64)
    everybody, count = place.ring.allreduce(mine).tolist()
    return everybody / max(count, 1.0), int(count)
