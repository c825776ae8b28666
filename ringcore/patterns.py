"""The masks there are: which keys a query may see, as descriptions that lower to intervals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ringcore import intervals
from ringcore.intervals import Intervals
from ringcore.mask import Mask
from ringcore.protocols import Array

__all__ = ["causal", "dense", "documents", "full", "global_tokens", "keys", "padding", "prefix", "window"]


@dataclass(frozen=True, eq=False, repr=False)
class _Band(Mask):
    """Keys in [q + low, q + high); None is unbounded."""

    low: int | None
    high: int | None
    text: str

    def lower(self, xp: Array, q_pos: Array, S_k: int) -> Intervals:
        lo = xp.zeros_like(q_pos) if self.low is None else _shifted(xp, q_pos, self.low, S_k)
        hi = xp.full_like(q_pos, S_k) if self.high is None else _shifted(xp, q_pos, self.high, S_k)
        return intervals.single(xp, lo, hi, S_k)

    def __repr__(self) -> str:
        return self.text


@dataclass(frozen=True, eq=False, repr=False)
class _Keys(Mask):
    """Keys in [start, stop), whatever the query; stop None is the end."""

    start: int
    stop: int | None
    text: str

    def lower(self, xp: Array, q_pos: Array, S_k: int) -> Intervals:
        stop = S_k if self.stop is None else self.stop
        return intervals.single(
            xp, xp.full_like(q_pos, min(self.start, S_k)), xp.full_like(q_pos, min(stop, S_k)), S_k
        )

    def __repr__(self) -> str:
        return self.text


@dataclass(frozen=True, eq=False, repr=False)
class _Documents(Mask):
    """Each query sees the keys of its own document."""

    q_ends: np.ndarray  # (*B, n): where each document ends, among the queries
    k_ends: np.ndarray  # and among the keys

    @property
    def lead(self) -> tuple[int, ...]:  # type: ignore[override]
        return (*self.q_ends.shape[:-1], 1) if self.q_ends.ndim > 1 else ()

    def lower(self, xp: Array, q_pos: Array, S_k: int) -> Intervals:
        rows = [
            self._lower_row(xp, q_pos, q_ends, k_ends)
            for q_ends, k_ends in zip(_rows(self.q_ends), _rows(self.k_ends), strict=True)
        ]
        shape = (*self.lead, q_pos.shape[0])
        lo, hi = (xp.reshape(xp.stack(side), shape) for side in zip(*rows, strict=True))
        return intervals.single(xp, lo, hi, S_k)

    @staticmethod
    def _lower_row(xp: Array, q_pos: Array, q_ends: np.ndarray, k_ends: np.ndarray) -> tuple[Array, Array]:
        # A position behind the last document belongs to one more that has no keys.
        most = xp.iinfo(q_pos.dtype).max  # lengths may sum to more than there are positions
        q_ends, k_ends = np.minimum(q_ends, most), np.minimum(k_ends, most)
        starts = np.concatenate([[0], k_ends])
        stops = np.concatenate([k_ends, k_ends[-1:]])
        which = xp.searchsorted(xp.asarray(q_ends, dtype=q_pos.dtype), q_pos, side="right")
        lo = xp.take(xp.asarray(starts, dtype=q_pos.dtype), which, axis=0)
        return lo, xp.take(xp.asarray(stops, dtype=q_pos.dtype), which, axis=0)

    def __repr__(self) -> str:
        sides = [self.q_ends] if np.array_equal(self.q_ends, self.k_ends) else [self.q_ends, self.k_ends]
        return f"documents({', '.join(_text(np.diff(ends, prepend=0, axis=-1)) for ends in sides)})"


@dataclass(frozen=True, eq=False, repr=False)
class _Padding(Mask):
    """Keys before each batch row's length."""

    lengths: np.ndarray  # (*B,)

    @property
    def lead(self) -> tuple[int, ...]:  # type: ignore[override]
        return (*self.lengths.shape, 1) if self.lengths.ndim else ()

    def lower(self, xp: Array, q_pos: Array, S_k: int) -> Intervals:
        shape = (*self.lead, q_pos.shape[0])
        stop = xp.asarray(np.minimum(self.lengths, S_k), dtype=q_pos.dtype)
        hi = xp.broadcast_to(xp.reshape(stop, (*self.lead, 1)), shape)
        return intervals.single(xp, xp.zeros_like(hi), hi, S_k)

    def __repr__(self) -> str:
        return f"padding({_text(self.lengths)})"


@dataclass(frozen=True, eq=False, repr=False)
class _GlobalTokens(Mask):
    """These positions see all and are seen by all (Longformer)."""

    runs: tuple[tuple[int, int], ...]  # consecutive positions joined into [start, stop)

    def lower(self, xp: Array, q_pos: Array, S_k: int) -> Intervals:
        inside = xp.zeros(q_pos.shape, dtype=xp.bool)
        lo, hi = [], []
        for start, stop in self.runs:
            inside = inside | ((q_pos >= start) & (q_pos < stop))
            lo.append(xp.full_like(q_pos, min(start, S_k)))
            hi.append(xp.full_like(q_pos, min(stop, S_k)))
        seen = Intervals(xp.stack(lo), xp.stack(hi))  # disjoint and sorted, as runs are
        start = xp.where(inside, xp.zeros_like(q_pos), xp.full_like(q_pos, S_k))
        sees_all = intervals.single(xp, start, xp.full_like(q_pos, S_k), S_k)
        return intervals.union(xp, sees_all, seen, S_k)

    def __repr__(self) -> str:
        texts = [str(a) if b == a + 1 else f"{a}..{b - 1}" for a, b in self.runs]
        return f"global_tokens([{', '.join(texts)}])"


@dataclass(frozen=True, eq=False, repr=False)
class _Dense(Mask):
    array: Array

    @property
    def arrays(self) -> tuple[Array, ...]:  # type: ignore[override]
        return (self.array,)

    def lower(self, xp: Array, q_pos: Array, S_k: int) -> Intervals:
        return full().lower(xp, q_pos, S_k)

    def _identity(self) -> bytes:
        return b"dense"  # each rank holds its own rows: nothing to compare

    def __repr__(self) -> str:
        return "dense(...)"


def full() -> Mask:
    """Every query sees every key."""
    return _Keys(0, None, "full()")


def causal(offset: int = 0) -> Mask:
    """Query i sees the keys up to and including i + offset, in global positions.

    Parameters
    ----------
    offset : int, default 0
        0: the query's own position is the last one it sees. Positions count from the start of both
        sequences; this is not bottom-right alignment. For that, pass ``S_k - S_q``.

    Raises
    ------
    TypeError
        If ``offset`` is not an integer.

    Examples
    --------
    >>> import numpy as np
    >>> lo, hi = causal().lower(np, np.arange(3), 3)
    >>> hi
    array([[1, 2, 3]])
    """
    offset = _integer("offset", offset)
    return _Band(None, offset + 1, f"causal({offset})" if offset else "causal()")


def window(left: int | None, right: int | None) -> Mask:
    """Query i sees the keys i - left ... i + right: left + 1 + right of them.

    Parameters
    ----------
    left, right : int or None
        How far the query sees to either side, in tokens, >= 0; None is unbounded.

    Raises
    ------
    TypeError
        If one is neither an integer nor None.
    ValueError
        If one is negative.
    """
    for name, side in (("left", left), ("right", right)):
        if side is not None and _integer(name, side) < 0:
            raise ValueError(
                f"{name} must be >= 0 or None (unbounded). Got {side}. "
                "To shift a window use causal(offset) & ~causal(offset - width)."
            )
    return _Band(
        None if left is None else -int(left),
        None if right is None else int(right) + 1,
        f"window({left}, {right})",
    )


def keys(start: int, stop: int) -> Mask:
    """Every query sees the keys start ... stop - 1 and no others."""
    start, stop = _integer("start", start), _integer("stop", stop)
    if start < 0 or stop < start:
        raise ValueError(f"keys(start, stop) needs 0 <= start <= stop. Got start={start}, stop={stop}.")
    return _Keys(start, stop, f"keys({start}, {stop})")


def prefix(n: int) -> Mask:
    """Every query sees the first n keys; ``causal() | prefix(n)`` is a prefix language model."""
    if _integer("n", n) < 0:
        raise ValueError(f"n must be >= 0. Got {n}.")
    return _Keys(0, int(n), f"prefix({int(n)})")


def documents(
    lengths: Sequence[int] | Sequence[Sequence[int]] | Array,
    k_lengths: Sequence[int] | Sequence[Sequence[int]] | Array | None = None,
) -> Mask:
    """Packed sequences: each query sees the keys of its own document.

    Parameters
    ----------
    lengths : array_like of int, shape (n,) or (\\*B, n)
        Tokens of each document, >= 0, in order of position; one row per batch row, or one for all.
        A position behind the last document belongs to none: as a query it sees nothing, as a key it
        is hidden.
    k_lengths : array_like of int, optional
        The documents' lengths among the keys, where queries and keys are different sequences.

    Raises
    ------
    TypeError
        If the lengths are not integers.
    ValueError
        If one is negative, there is none, or the two shapes differ.

    Examples
    --------
    >>> import numpy as np
    >>> lo, hi = documents([2, 1]).lower(np, np.arange(4), 4)
    >>> lo.tolist(), hi.tolist()
    ([[0, 0, 2, 4]], [[2, 2, 3, 4]])
    """
    q_ends = np.cumsum(_lengths("lengths", lengths), axis=-1)
    k_ends = q_ends if k_lengths is None else np.cumsum(_lengths("k_lengths", k_lengths), axis=-1)
    if q_ends.shape != k_ends.shape:
        raise ValueError(
            "lengths and k_lengths must have the same shape, one pair for each document. "
            f"Got {q_ends.shape} and {k_ends.shape}. Use length 0 for a document without keys."
        )
    if q_ends.size == 0:
        raise ValueError("lengths must hold at least one document. Got none.")
    return _Documents(q_ends, k_ends)


def padding(lengths: Sequence[int] | Array) -> Mask:
    """Hide each batch row's keys behind its length; queries there are computed all the same.

    Parameters
    ----------
    lengths : array_like of int, shape (\\*B,)
        Keys of each batch row that are real, >= 0.
    """
    return _Padding(_lengths("lengths", lengths))


def global_tokens(positions: Sequence[int] | Array) -> Mask:
    """These positions see every key and are seen by every query; join with ``| window(...)``.

    Reference: I. Beltagy, M. E. Peters, A. Cohan, *Longformer: The Long-Document Transformer*, 2020.
    """
    where = np.unique(_lengths("positions", positions))
    if where.size == 0:
        raise ValueError("positions must hold at least one position. Got none.")
    breaks = np.flatnonzero(np.diff(where) > 1) + 1
    runs = [(int(run[0]), int(run[-1]) + 1) for run in np.split(where, breaks)]
    return _GlobalTokens(tuple(runs))


def dense(array: Array) -> Mask:
    """An arbitrary boolean mask, one row per local query: joins other masks by ``&`` only.

    Parameters
    ----------
    array : array of bool, shape (\\*B|1, H|1, L_q, S_k) or without leading axes
        True where the query sees the key. Rows are this rank's queries, columns all keys in global
        order. It keeps the queries at home: K and V travel.

    Raises
    ------
    TypeError
        If it is not an array of booleans.
    """
    name = str(getattr(array, "dtype", type(array).__name__)).rpartition(".")[2]
    if name != "bool" or getattr(array, "ndim", 0) < 2:
        raise TypeError(
            "dense(array) must be a boolean array of shape (..., L_q, S_k). "
            f"Got {name} of shape {getattr(array, 'shape', None)}. "
            "Compare with a threshold, or use astype(bool)."
        )
    return _Dense(array)


def _shifted(xp: Array, q_pos: Array, by: int, S_k: int) -> Array:
    """``q_pos + by``, or S_k where that is more: nothing wraps around, however large ``by``."""
    most = xp.iinfo(q_pos.dtype).max
    by = max(-most, min(by, S_k))
    return xp.minimum(q_pos, xp.full_like(q_pos, min(S_k - by, most))) + by


def _integer(name: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        raise TypeError(f"{name} must be an integer. Got {value!r}.")
    return int(value)


def _lengths(name: str, values: object) -> np.ndarray:
    array = np.asarray(values)
    if array.size == 0:
        array = array.astype(np.int64)
    if array.dtype.kind not in "iu":
        raise TypeError(f"{name} must be integers. Got {array.dtype} {values!r:.60}.")
    if array.size and array.min() < 0:
        raise ValueError(f"{name} must be >= 0. Got {int(array.min())}.")
    if array.size and array.astype(float).sum(axis=-1).max() >= 2**63:  # they would wrap around
        raise ValueError(f"{name} must be positions of a sequence. Got {int(array.max())}.")
    array = array.astype(np.int64)  # a copy: the mask must not change when the caller's array does
    array.setflags(write=False)
    return array


def _text(array: np.ndarray) -> str:
    """On one line, and short."""
    return " ".join(np.array2string(array, threshold=8, edgeitems=3, separator=", ").split())


def _rows(array: np.ndarray) -> np.ndarray:
    return array.reshape(-1, array.shape[-1])
