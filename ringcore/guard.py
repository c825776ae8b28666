"""Keeping NaN and inf where they belong: 0 x NaN is NaN inside a product.

A weight of zero does not keep a NaN in an unseen row out of ``weights @ x``. So where an operand holds
something non-finite, its finite part goes through the product, and a second product with the mask
itself finds the results that the rest reaches.
"""

from __future__ import annotations

import math

from ringcore.product import matmul
from ringcore.protocols import Array


def all_finite(xp: Array, x: Array, traced: bool) -> bool | None:
    """Whether an operand holds neither NaN nor inf; None where its numbers cannot be looked at."""
    return None if traced else bool(xp.all(xp.isfinite(x)))


def masked_product(xp: Array, weights: Array, x: Array, seen: Array | None, finite: bool | None) -> Array:
    """``weights @ x`` where a NaN or inf in a row of x reaches only the rows of weights that see it.

    Parameters
    ----------
    weights : array, shape (.., M, N)
        0 where not seen.
    x : array, shape (.., N, D)
    seen : boolean array, shape (.., M, N), or None
        None: all is seen, and whatever the product gives is right.
    finite : bool or None
        What `all_finite` says of x. None: rows that nobody in the tile sees are zeroed; a bad row that
        somebody sees may then reach all rows of the tile.

    Returns
    -------
    array, shape (.., M, D)
        NaN where a seen row of x has a NaN or inf in that column.
    """
    if seen is None or finite:
        return matmul(weights, x)
    zero = xp.zeros_like(x)
    if finite is None:
        return matmul(weights, xp.where(xp.any(seen, axis=-2)[..., None], x, zero))
    good = xp.isfinite(x)
    product = matmul(weights, xp.where(good, x, zero))
    reached = matmul(xp.astype(seen, x.dtype), xp.astype(~good, x.dtype)) > 0
    return xp.where(reached, xp.full_like(product, math.nan), product)
