"""The partial result of attention over some of the keys, and its merge.

``Partial(acc, m, l)`` over a set of keys holds ``m``, a running reference (normally the largest
score), ``l = sum exp(s - m)`` and ``acc = sum exp(s - m) v``. Merging is associative and commutative
with identity (0, -inf, 0), so hops, tiles and ranks may be merged in any order; the division
``out = acc / l`` happens once, at the end. Passing a rounded (out, lse) from hop to hop instead makes
the error grow with the number of ranks.

Reference: M. Milakov and N. Gimelshein, *Online normalizer calculation for softmax*, 2018.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from ringcore.protocols import Array


class Partial(NamedTuple):
    """Attention over some keys, not yet divided by its sum; accumulation dtype.

    Attributes
    ----------
    acc : array, shape (\\*B, H, L_q, E)
    m, l : array, shape (\\*B, H, L_q)
    """

    acc: Array
    m: Array
    l: Array  # noqa: E741 - the field's letter for the softmax sum


def identity(xp: Array, shape: tuple[int, ...], dtype: object, device: object = None) -> Partial:
    """The partial over no keys; ``shape`` is that of ``acc``."""
    return Partial(
        xp.zeros(shape, dtype=dtype, device=device),
        xp.full(shape[:-1], -math.inf, dtype=dtype, device=device),
        xp.zeros(shape[:-1], dtype=dtype, device=device),
    )


def finite_reference(xp: Array, m: Array) -> Array:
    """``m`` with 0 in place of -inf, so that ``s - m`` is never -inf - -inf."""
    return xp.where(m == -math.inf, xp.zeros_like(m), m)


def merge(xp: Array, a: Partial, b: Partial) -> Partial:
    """The partial over the keys of both; the key sets must be disjoint."""
    m = xp.maximum(a.m, b.m)
    reference = finite_reference(xp, m)
    scale_a, scale_b = xp.exp(a.m - reference), xp.exp(b.m - reference)
    return Partial(a.acc * scale_a[..., None] + b.acc * scale_b[..., None], m, a.l * scale_a + b.l * scale_b)


def finish(xp: Array, partial: Partial) -> tuple[Array, Array]:
    """Output and log-sum-exp (natural logarithm): 0 and -inf for a query that saw no key."""
    acc, m, l = partial  # noqa: E741
    # No key is l = 0, or (0, -inf, 1) of a kernel that gives (out, lse). NaN counts as seen: it must stay,
    # also where only l tells, since the library's max has lost it, as XLA's may on CPUs.
    seen = (l != 0) & ((m != -math.inf) | xp.isnan(l))
    divisor = xp.where(seen, l, xp.ones_like(l))
    out = xp.where(seen[..., None], acc / divisor[..., None], xp.zeros_like(acc))
    lse = xp.where(seen, finite_reference(xp, m) + xp.log(divisor), xp.full_like(l, -math.inf))
    return out, lse
