"""Which keys a query may see.

A mask is a description, O(1) or O(documents) large, never an array over the whole sequence. It is
lowered for a few query positions at a time into half-open intervals of *global* key positions
(`ringcore.intervals`), so ``&``, ``|`` and ``~`` are exact. A boolean array (`dense`) is no set of a
few intervals and joins by ``&`` only. The masks themselves are in `ringcore.patterns`.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

import numpy as np

from ringcore import intervals
from ringcore.intervals import Intervals
from ringcore.protocols import Array

if TYPE_CHECKING:
    from ringcore.layout import Layout


class Mask:
    """Base class of all masks; combine masks with ``&``, ``|`` and ``~``.

    A subclass is a frozen dataclass that gives `lower`. Masks are the same on every rank, except for
    the rows of a dense array.
    """

    lead: tuple[int, ...] = ()
    """Shape that must broadcast to (\\*B, H): () for a mask that is the same for all batch rows."""

    arrays: tuple[Array, ...] = ()
    """Boolean arrays joined by ``&``, each (\\*B|1, H|1, L_q, S_k), this rank's rows."""

    def lower(self, xp: Array, q_pos: Array, S_k: int) -> Intervals:
        """Intervals of visible global key positions.

        Parameters
        ----------
        xp : namespace
            An array API namespace; may be traced.
        q_pos : array of int, shape (L_q,)
            Global query positions.
        S_k : int
            Global number of keys.

        Returns
        -------
        Intervals
            ``lo`` and ``hi`` of shape (n, \\*lead, L_q): sorted, disjoint, unused slots last at S_k.
        """
        raise TypeError(f"{type(self).__name__} does not define lower()")

    def digest(self) -> str:
        """A short text that differs between masks that differ; what ranks compare."""
        return hashlib.blake2b(self._identity(), digest_size=8).hexdigest()

    def _identity(self) -> bytes:
        """What the mask is, in bytes: its type and the values of its fields, arrays in full."""
        parts = [type(self).__qualname__.encode()]
        for field in fields(self):  # type: ignore[arg-type]  # every mask is a dataclass
            value = getattr(self, field.name)
            if isinstance(value, Mask):
                parts.append(value._identity())
            elif isinstance(value, np.ndarray):
                parts += [repr((value.dtype.str, value.shape)).encode(), value.tobytes()]
            else:
                parts.append(repr(value).encode())
        return b"(" + b",".join(parts) + b")"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Mask) or self._identity() != other._identity():
            return False
        # What `_identity` leaves out: dense arrays, which hold other rows on each rank.
        return all(a is b for a, b in zip(self.arrays, other.arrays, strict=True))

    def __hash__(self) -> int:
        return hash(self._identity())

    def __and__(self, other: Mask) -> Mask:
        return _And(self, _as_mask(other, "&"))

    def __or__(self, other: Mask) -> Mask:
        return _Or(_intervals_only(self, "|"), _intervals_only(_as_mask(other, "|"), "|"))

    __array_ufunc__ = None  # so that `array & mask` asks the mask

    def __rand__(self, other: object) -> Mask:
        return _as_mask(other, "&")

    def __ror__(self, other: object) -> Mask:
        return _as_mask(other, "|")

    def __bool__(self) -> bool:
        raise TypeError("a mask is neither true nor false. Combine masks by &, | and ~, not by and, or, not.")

    def __invert__(self) -> Mask:
        return _Not(_intervals_only(self, "~"))

    def describe(self, layout: Layout, k_layout: Layout | None = None) -> str:
        """Who sees whom: a table of ranks, for up to 64 ranks, and each rank's share of the work.

        Parameters
        ----------
        layout : Layout
            Of the queries.
        k_layout : Layout, optional
            Of the keys; the same by default.

        Returns
        -------
        str
            One row per query rank and one column per key rank: ``.`` nothing visible, ``+`` some,
            ``#`` all; then the rank's visible pairs over the mean (1.00 is perfect balance).

        Examples
        --------
        >>> import ringcore as rc
        >>> print(rc.causal().describe(rc.Layout.contiguous(length=12, ranks=3)))
        causal(): rows are query ranks, columns key ranks (. none, + some, # all)
           0 +..  work 0.38
           1 #+.  work 1.00
           2 ##+  work 1.62
        """
        from ringcore.describe import table

        return table(self, layout, layout if k_layout is None else k_layout)


def _as_mask(other: object, operator: str) -> Mask:
    if not isinstance(other, Mask):
        raise TypeError(
            f"both sides of {operator} must be masks. Got {type(other).__name__}. "
            "Wrap a boolean array with ringcore.dense(array)."
        )
    return other


def _intervals_only(mask: Mask, operator: str) -> Mask:
    if mask.arrays:
        raise TypeError(
            f"a mask that holds a dense array can only be joined by &. Got {operator} on {mask!r}. "
            "Apply | and ~ to the boolean array before you pass it to ringcore.dense."
        )
    return mask


@dataclass(frozen=True, eq=False, repr=False)
class _And(Mask):
    left: Mask
    right: Mask

    @property
    def lead(self) -> tuple[int, ...]:  # type: ignore[override]
        return _join_leads(self.left, self.right, "&")

    @property
    def arrays(self) -> tuple[Array, ...]:  # type: ignore[override]
        return self.left.arrays + self.right.arrays

    def __post_init__(self) -> None:
        _join_leads(self.left, self.right, "&")

    def lower(self, xp: Array, q_pos: Array, S_k: int) -> Intervals:
        a, b = self.left.lower(xp, q_pos, S_k), self.right.lower(xp, q_pos, S_k)
        return intervals.intersection(xp, a, b, S_k)

    def __repr__(self) -> str:
        return f"({self.left!r} & {self.right!r})"


@dataclass(frozen=True, eq=False, repr=False)
class _Or(Mask):
    left: Mask
    right: Mask

    @property
    def lead(self) -> tuple[int, ...]:  # type: ignore[override]
        return _join_leads(self.left, self.right, "|")

    def __post_init__(self) -> None:
        _join_leads(self.left, self.right, "|")

    def lower(self, xp: Array, q_pos: Array, S_k: int) -> Intervals:
        a, b = self.left.lower(xp, q_pos, S_k), self.right.lower(xp, q_pos, S_k)
        return intervals.union(xp, a, b, S_k)

    def __repr__(self) -> str:
        return f"({self.left!r} | {self.right!r})"


@dataclass(frozen=True, eq=False, repr=False)
class _Not(Mask):
    inner: Mask

    @property
    def lead(self) -> tuple[int, ...]:  # type: ignore[override]
        return self.inner.lead

    def lower(self, xp: Array, q_pos: Array, S_k: int) -> Intervals:
        return intervals.complement(xp, self.inner.lower(xp, q_pos, S_k), S_k)

    def __repr__(self) -> str:
        return f"~{self.inner!r}"


def _join_leads(a: Mask, b: Mask, operator: str) -> tuple[int, ...]:
    try:
        return tuple(np.broadcast_shapes(a.lead, b.lead))
    except ValueError:
        raise ValueError(
            f"both sides of {operator} must be for the same batch. "
            f"Got rows of shape {a.lead[:-1]} in {a!r} and {b.lead[:-1]} in {b!r}."
        ) from None
