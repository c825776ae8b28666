"""Who may see whom, as plain predicates: the reference for ringcore's masks.

The constructors have the names and signatures of ringcore's masks, but each is the definition itself, a
predicate of one query position ``i`` and one key position ``j``, and nothing else: no intervals, no
layouts, no ranks. Imports nothing but NumPy.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

Bools = NDArray[np.bool_]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Visibility:
    """A predicate of global positions; joins with ``&``, ``|`` and ``~``.

    Attributes
    ----------
    see : callable
        ``see(i, j)`` with ints of shape (S_q, 1) and (1, S_k) gives bools broadcastable to (\\*B, H, S_q,
        S_k).
    text : str
        How it was written.

    Examples
    --------
    >>> (causal() & window(1, 0)).table(3, 3).astype(int)
    array([[1, 0, 0],
           [1, 1, 0],
           [0, 1, 1]])
    """

    see: Callable[[Ints, Ints], Bools]
    text: str

    def table(self, S_q: int, S_k: int) -> Bools:
        """The whole matrix: bool, (S_q, S_k) or (\\*B, 1, S_q, S_k); True where the query may see the key."""
        i, j = np.arange(S_q)[:, None], np.arange(S_k)[None, :]
        seen = np.asarray(self.see(i, j))
        whole: Bools = np.broadcast_to(seen, np.broadcast_shapes(seen.shape, (S_q, S_k)))
        return whole

    def __and__(self, other: Visibility) -> Visibility:
        return Visibility(lambda i, j: self.see(i, j) & other.see(i, j), f"({self.text} & {other.text})")

    def __or__(self, other: Visibility) -> Visibility:
        return Visibility(lambda i, j: self.see(i, j) | other.see(i, j), f"({self.text} | {other.text})")

    def __invert__(self) -> Visibility:
        return Visibility(lambda i, j: ~self.see(i, j), f"~{self.text}")

    def __repr__(self) -> str:
        return self.text


def full() -> Visibility:
    """Every query sees every key."""
    return Visibility(lambda i, j: (i == i) & (j == j), "full()")


def causal(offset: int = 0) -> Visibility:
    """Key ``j`` is at or before query ``i + offset``."""
    return Visibility(lambda i, j: j <= i + offset, f"causal({offset})")


def window(left: int | None, right: int | None) -> Visibility:
    """At most ``left`` keys back and ``right`` keys ahead; None is unbounded."""

    def see(i: Ints, j: Ints) -> Bools:
        back, ahead = i - j, j - i
        near_enough_back = (back <= left) if left is not None else (back == back)
        near_enough_ahead = (ahead <= right) if right is not None else (ahead == ahead)
        return near_enough_back & near_enough_ahead

    return Visibility(see, f"window({left}, {right})")


def keys(start: int, stop: int) -> Visibility:
    """Keys ``start <= j < stop``, for every query."""
    return Visibility(lambda i, j: (start <= j) & (j < stop) & (i == i), f"keys({start}, {stop})")


def prefix(n: int) -> Visibility:
    """The first ``n`` keys, for every query."""
    return Visibility(lambda i, j: (j < n) & (i == i), f"prefix({n})")


def documents(lengths: ArrayLike, k_lengths: ArrayLike | None = None) -> Visibility:
    """Query and key are in the same document: some document holds both.

    Parameters
    ----------
    lengths : int array_like, shape (n,) or (\\*B, n)
        Lengths of consecutive documents; what comes after the last one is in none.
    k_lengths : int array_like, optional
        The same on the key side, for cross-attention; as many documents.
    """
    on_q = np.asarray(lengths, dtype=np.int64)
    on_k = on_q if k_lengths is None else np.asarray(k_lengths, dtype=np.int64)

    def holds(sizes: Ints, x: Ints) -> Bools:
        """(n, \\*x.shape), or (\\*B, 1, n, \\*x.shape): whether document d holds position x."""
        stop = np.cumsum(sizes, axis=-1)[..., None, None]
        start = stop - sizes[..., None, None]
        inside = (start <= x) & (x < stop)
        return np.asarray(inside if sizes.ndim == 1 else np.expand_dims(inside, -4))

    def see(i: Ints, j: Ints) -> Bools:
        return np.asarray(np.any(holds(on_q, i) & holds(on_k, j), axis=-3))

    name = f"documents({on_q.tolist()}" + ("" if k_lengths is None else f", {on_k.tolist()}") + ")"
    return Visibility(see, name)


def padding(lengths: ArrayLike) -> Visibility:
    """Keys ``j < length`` of each batch row; ``lengths`` has shape (\\*B,)."""
    sizes = np.asarray(lengths, dtype=np.int64)
    bound = sizes[..., None, None, None] if sizes.ndim else sizes
    return Visibility(lambda i, j: (j < bound) & (i == i), f"padding({sizes.tolist()})")


def global_tokens(positions: Sequence[int] | Ints) -> Visibility:
    """Pairs of which the query or the key is at one of the ``positions``."""
    chosen = np.asarray(positions, dtype=np.int64).reshape(-1)
    return Visibility(
        lambda i, j: np.isin(i, chosen) | np.isin(j, chosen), f"global_tokens({chosen.tolist()})"
    )


def dense(array: Any) -> Visibility:
    """The bools themselves, of the whole sequence: broadcastable to (\\*B, H, S_q, S_k)."""
    table = np.asarray(array, dtype=np.bool_)
    return Visibility(lambda i, j: table & (i == i) & (j == j), f"dense(<{'x'.join(map(str, table.shape))}>)")
