"""Problems for the decoder of examples/transformer, and how far rounding may move what it finds."""

from __future__ import annotations

import dna
import model
import numpy as np
from blockwise import Place
from weights import Sizes, Weights, initial, zeros

import ringcore as rc

SIZES = Sizes(layers=2, width=24, heads=4, kv_heads=2, hidden=40)
S = 203  # 7 x 29
U = {"float32": 2.0**-24, "float64": 2.0**-53}

Found = tuple[float, dict[str, np.ndarray]]
"""A loss, and its gradient by the parameters' names."""


def letters(length: int = S) -> np.ndarray:
    """Random bases, length + 1 of them, one in ten ambiguous; the first forty come again at the end."""
    drawn = np.random.default_rng(7).choice(5, length + 1, p=[0.3, 0.15, 0.15, 0.3, 0.1]).astype(np.uint8)
    drawn[-40:] = drawn[:40]
    return drawn


def weights_of(dtype: str) -> Weights:
    """Weights that are nowhere special, no zeros in the head, no ones in the norms; equal in both dtypes."""
    drawn = initial(SIZES, 3, "float32")
    drawn.flat[...] += 0.3 * np.random.default_rng(4).standard_normal(drawn.flat.size)
    weights = zeros(SIZES, dtype)
    weights.flat[...] = drawn.flat
    return weights


def on_ring(layout: rc.Layout, dtype: str, chunk: int = 32) -> Found:
    """What the example finds; on all ranks the same bits."""
    weights, text = weights_of(dtype), letters(layout.length)

    def on_rank(ring):
        shard, place = dna.shard(text, 0, ring, layout), Place.of(ring, layout, chunk)
        loss, grads = model.loss_and_gradient(weights, SIZES, shard, place)
        assert model.loss(weights, SIZES, shard, place) == loss
        return loss, grads

    (loss, grads), *others = rc.run_ranks(layout.ranks, on_rank, timeout=60.0)
    for other_loss, other in others:
        assert other_loss == loss and np.array_equal(other.flat, grads.flat)
    assert grads.flat.dtype == dtype
    return loss, dict(grads.named())


def on_one_rank(dtype: str, length: int = S) -> Found:
    return on_ring(rc.Layout.contiguous(length=length, ranks=1), dtype)


def distances(a: Found, b: Found) -> dict[str, float]:
    """Of two losses, and of two gradients for each parameter, relative to the second."""
    assert a[1].keys() == b[1].keys()
    pairs = {"loss": (a[0], b[0]), **{name: (a[1][name], b[1][name]) for name in b[1]}}
    wide = {name: (np.asarray(x, np.float64), np.asarray(y, np.float64)) for name, (x, y) in pairs.items()}
    return {name: float(np.linalg.norm(x - y) / np.linalg.norm(y)) for name, (x, y) in wide.items()}


def assert_within_rounding(found: Found, want: Found, dtype: str, natural: dict[str, float]) -> None:
    """At most 8 times as far apart as float32 arithmetic is wrong about this problem, in proportion to u.

    ``natural`` are the relative errors of a float32 computation. That of the loss, a single number, may be
    small by chance: it is taken for 1 u at least.
    """
    for name, distance in distances(found, want).items():
        units = natural[name] / U["float32"]
        bound = 8 * U[dtype] * (max(units, 1.0) if name == "loss" else units)
        assert distance <= bound, f"{name}: {distance / U[dtype]:.1f} u, allowed {bound / U[dtype]:.1f} u"
