"""Keeping NaN and inf where they belong: 0 x NaN is NaN inside a product.

A weight of zero does not keep a NaN in an unseen row out of ``weights @ x``. So the few bad rows of an
operand are found once per step, the finite part goes through the product, and the bad rows are added
under the mask.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from ringcore.product import matmul
from ringcore.protocols import Array


@dataclass(frozen=True)
class BadRows:
    """Rows of an operand (.., L, D) that hold a NaN or inf in some batch row or head.

    ``rows`` is None where the numbers cannot be looked at (traced).
    """

    rows: tuple[int, ...] | None

    def within(self, start: int, stop: int, heads: int = 1) -> list[int] | None:
        """Their places in a tile of rows start..stop that stacks ``heads`` heads."""
        if self.rows is None:
            return None
        inside = [row - start for row in self.rows if start <= row < stop]
        return [h * (stop - start) + row for h in range(heads) for row in inside]


def nonfinite_rows(xp: Array, x: Array, traced: bool) -> BadRows:
    """Find the bad rows of an operand of shape (.., L, D)."""
    if traced:
        return BadRows(None)
    finite = xp.all(xp.isfinite(x), axis=-1)
    length = finite.shape[-1]
    finite = xp.all(xp.reshape(finite, (math.prod(finite.shape[:-1]), length)), axis=0)
    if bool(xp.all(finite)):
        return BadRows(())
    return BadRows(tuple(i for i in range(length) if not bool(finite[i])))


def masked_product(xp: Array, weights: Array, x: Array, seen: Array | None, bad: list[int] | None) -> Array:
    """``weights @ x`` where a bad row of x reaches only the rows of weights that see it.

    Parameters
    ----------
    weights : array, shape (.., M, N)
        0 where not seen.
    x : array, shape (.., N, D)
    seen : boolean array, shape (.., M, N), or None
        None: all is seen.
    bad : list of int, or None
        Bad rows of x; None if unknown, then the rows that nobody in the tile sees are zeroed.
    """
    if seen is None or bad == []:
        return matmul(weights, x)
    if bad is None:
        anybody = xp.any(seen, axis=-2)[..., None]
        return matmul(weights, xp.where(anybody, x, xp.zeros_like(x)))
    finite = xp.isfinite(x)
    product = matmul(weights, xp.where(finite, x, xp.zeros_like(x)))
    for row in bad:
        values = x[..., row : row + 1, :]
        only_bad = xp.where(finite[..., row : row + 1, :], xp.zeros_like(values), values)
        term = weights[..., row : row + 1] * only_bad
        product = product + xp.where(seen[..., row : row + 1], term, xp.zeros_like(term))
    return product
