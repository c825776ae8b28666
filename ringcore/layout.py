"""Which global positions of a sequence a rank holds.

In every layout a rank's positions are strictly increasing. So an interval of global positions is an
interval of local indices, found by `Layout.below` twice; kernels never see a stride.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import Any

import numpy as np
from array_api_compat import is_array_api_obj, is_torch_array

from ringcore.dtypes import dtype_name
from ringcore.protocols import Array
from ringcore.shards import cut, join

KINDS = ("contiguous", "striped", "zigzag", "uneven")


@dataclass(frozen=True, repr=False)
class Layout:
    """How a sequence of ``length`` positions is spread over ``ranks`` ranks: a hashable description.

    Make one with `contiguous`, `striped`, `zigzag` or `from_lengths`. Any length and any number of
    ranks go together; ranks may be left without positions.

    Attributes
    ----------
    kind : str
        'contiguous', 'striped', 'zigzag' or 'uneven' (`from_lengths`).
    length : int
        Global sequence length S.
    ranks : int
        Number of ranks P.
    block : int
        Positions dealt out at a time; 1 unless striped.
    lengths : tuple of int, optional
        Count of each rank, if 'uneven'.

    Examples
    --------
    >>> layout = Layout.zigzag(length=10, ranks=2)
    >>> layout
    Layout.zigzag(length=10, ranks=2)
    >>> layout.positions(0), layout.positions(1)
    (array([0, 1, 7, 8, 9]), array([2, 3, 4, 5, 6]))
    >>> print(layout.describe())
    Layout.zigzag(length=10, ranks=2)
    rank 0 holds 5: [0, 2) [7, 10)
    rank 1 holds 5: [2, 7)
    """

    kind: str
    length: int
    ranks: int
    block: int = 1
    lengths: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        if self.kind not in KINDS or (self.kind == "uneven") != (self.lengths is not None):
            raise ValueError(
                f"kind must be one of {', '.join(KINDS)}, with lengths if and only if 'uneven'. Got kind "
                f"{self.kind!r}, lengths {self.lengths!r}. "
                "Use Layout.contiguous, striped, zigzag or from_lengths."
            )
        for name, least in (("length", 0), ("ranks", 1), ("block", 1)):
            object.__setattr__(self, name, _whole(name, getattr(self, name), least))
        if self.lengths is not None and (sum(self.lengths), len(self.lengths)) != (self.length, self.ranks):
            raise ValueError(
                f"lengths must be one for each of {self.ranks} ranks and sum to {self.length}. Got "
                f"{len(self.lengths)} that sum to {sum(self.lengths)}. Use Layout.from_lengths."
            )

    @classmethod
    def contiguous(cls, *, length: int, ranks: int) -> Layout:
        """Rank r holds the r-th of P stretches; the first S % P of them are one longer."""
        return cls("contiguous", length, ranks)

    @classmethod
    def striped(cls, *, length: int, ranks: int, block: int = 1) -> Layout:
        """Position p belongs to rank (p // block) % P: dealt out like cards, ``block`` at a time."""
        return cls("striped", length, ranks, block)

    @classmethod
    def zigzag(cls, *, length: int, ranks: int) -> Layout:
        """Of 2P chunks rank r holds chunks r and 2P-1-r, which balances causal attention.

        The last S % 2P chunks are one longer. Causal work of the busiest rank is at most 1 + 2P/S
        times the mean if S >= 2P.
        """
        return cls("zigzag", length, ranks)

    @classmethod
    def from_lengths(cls, lengths: Sequence[int]) -> Layout:
        """Contiguous, rank r holding ``lengths[r]`` positions; equal to `contiguous` where it is that.

        Examples
        --------
        >>> Layout.from_lengths([3, 0, 5]).ranges(2)
        (range(3, 8),)
        >>> Layout.from_lengths([3, 3, 2])
        Layout.contiguous(length=8, ranks=3)
        """
        counts = tuple(_whole(f"lengths[{rank}]", n, 0) for rank, n in enumerate(lengths))
        even = cls("contiguous", sum(counts), len(counts))
        if counts == tuple(even.count(rank) for rank in range(even.ranks)):
            return even
        return cls("uneven", even.length, even.ranks, lengths=counts)

    def __repr__(self) -> str:
        if self.lengths is not None:
            return f"Layout.from_lengths({list(self.lengths)})"
        block = f", block={self.block}" if self.block != 1 else ""
        return f"Layout.{self.kind}(length={self.length}, ranks={self.ranks}{block})"

    # ------------------------------------------------------------------ positions

    def count(self, rank: int) -> int:
        """How many positions a rank holds."""
        rank = self._rank(rank)
        if self.kind != "striped":
            return sum(self.chunk_start(c + 1) - self.chunk_start(c) for c in self._chunks(rank))
        block, cycles, rest = self.deal
        return cycles * block + min(max(rest - rank * block, 0), block)

    def counts(self) -> np.ndarray[Any, np.dtype[np.int64]]:
        """How many positions each rank holds, int64 of shape (P,): `count` of all at once."""
        if self.kind == "striped":
            block, cycles, rest = self.deal
            return cycles * block + np.clip(rest - block * np.arange(self.ranks), 0, block)
        return self._of_ranks(np.add, np.diff(self._chunk_starts()))

    def ranges(self, rank: int) -> tuple[range, ...]:
        """A rank's positions as non-empty ranges in increasing order; () if it holds none.

        Striped with block 1 is one range whose step is ``ranks``; every other step is 1.
        """
        rank = self._rank(rank)
        if self.kind != "striped":
            found = [range(self.chunk_start(c), self.chunk_start(c + 1)) for c in self._chunks(rank)]
            if len(found) == 2 and found[0].stop == found[1].start:  # zigzag's last rank
                found = [range(found[0].start, found[1].stop)]
        elif self.block == 1:
            found = [range(rank, self.length, self.ranks)]
        else:
            block, period = self._block, self._block * self.ranks
            starts = range(rank * block, self.length, period)
            found = [range(start, min(start + block, self.length)) for start in starts]
        return tuple(r for r in found if r)

    def positions(self, rank: int) -> np.ndarray[Any, np.dtype[np.int64]]:
        """Global positions of a rank's elements, int64 of shape (count,), strictly increasing."""
        found: np.ndarray[Any, np.dtype[np.int64]] = self.global_positions(rank, np.arange(self.count(rank)))
        return found

    def below(self, rank: Any, x: Any, xp: Any = np) -> Array:
        """How many of a rank's positions are < x: global to local, in closed form.

        Parameters
        ----------
        rank : int or integer array
            May be traced; broadcasts against ``x``. The range of a traced rank is not checked.
        x : int or integer array
            Any values: what is outside [0, length] counts as the nearer end.
        xp : module
            Array API namespace to compute in.

        Returns
        -------
        array
            Of the namespace's default integer dtype: int64 for NumPy.

        Examples
        --------
        >>> layout = Layout.striped(length=7, ranks=2)
        >>> layout.below(np.arange(2)[:, None], np.array([0, 1, 2, 99]))
        array([[0, 1, 1, 4],
               [0, 0, 1, 3]])
        """
        rank, x = self._traceable(xp, rank), self._ints(xp, "x", x)
        if self.kind != "striped":
            total = 0
            for chunk in self._chunks(rank):
                start, stop = self.chunk_start(chunk, xp), self.chunk_start(chunk + 1, xp)
                total = total + _clip(xp, x - start, stop - start)
            return total
        block = self._block
        x = xp.clip(x, 0, self.length)
        cycles = x // (block * self.ranks)
        return cycles * block + _clip(xp, x - cycles * (block * self.ranks) - rank * block, block)

    def global_positions(self, rank: Any, index: Any, xp: Any = np) -> Array:
        """Global position of a rank's ``index``-th element, in closed form.

        Parameters
        ----------
        rank : int or integer array
            May be traced; broadcasts against ``index``. The range of a traced rank is not checked.
        index : int or integer array
            Local indices, >= 0. One past a rank's last element gives ``length``, as padding needs.
        xp : module
            Array API namespace to compute in.

        Returns
        -------
        array
            Of the namespace's default integer dtype: int64 for NumPy.
        """
        rank, index = self._traceable(xp, rank), self._ints(xp, "index", index)
        held = self.below(rank, self.length, xp)
        i = _clip(xp, index + 0 * rank, held)  # before it is multiplied: no overflow
        if self.kind != "striped":
            chunks = self._chunks(rank)
            found = self.chunk_start(chunks[0], xp) + i
            if len(chunks) == 2:
                first = self.chunk_start(chunks[0] + 1, xp) - self.chunk_start(chunks[0], xp)
                found = xp.where(i < first, found, self.chunk_start(chunks[1], xp) + i - first)
        else:
            found = i // self._block * (self._block * self.ranks) + rank * self._block + i % self._block
        return xp.where(i < held, found, xp.full_like(found, self.length))

    def owner(self, positions: Any, xp: Any = np) -> Array:
        """Rank that holds each global position (integer array), in closed form.

        Raises
        ------
        IndexError
            If a position is outside [0, length); checked for NumPy arrays.
        """
        p = self._ints(xp, "positions", positions)
        if isinstance(p, np.ndarray) and np.any((p < 0) | (p >= self.length)):
            raise IndexError(
                f"positions must be in [0, {self.length}). Got {np.min(p)} to {np.max(p)}. "
                "Give positions of the sequence of this layout."
            )
        chunk = self._chunk_of(p, xp)
        if self.kind == "striped":
            return chunk % self.ranks
        return xp.where(chunk < self.ranks, chunk, 2 * self.ranks - 1 - chunk)

    def holders(self, lo: np.ndarray, hi: np.ndarray) -> np.ndarray:
        """Which ranks hold a position of one of these non-empty intervals [lo, hi): bool (P,).

        O(intervals + P): each interval marks a run of chunks, counted around the ranks where they are
        dealt out in turn.
        """
        turns = self.ranks * (2 if self.kind == "zigzag" else 1)
        first, last = self._chunk_of(lo, np), self._chunk_of(hi - 1, np)
        start, stop = first % turns, last % turns
        edges = np.zeros(turns + 1, np.int64)
        np.add.at(edges, start, 1)
        np.add.at(edges, stop + 1, -1)
        edges[0] += np.sum(stop < start) + np.sum(last - first >= turns)  # around the end; all the way
        marked = np.cumsum(edges[:-1]) > 0
        if self.kind != "striped":
            marked &= np.diff(self._chunk_starts()) > 0
        return self._of_ranks(np.logical_or, marked)

    def _chunk_of(self, p: Array, xp: Any) -> Array:
        """Number of the chunk, or of the dealt-out block, that holds a position."""
        if self.kind == "striped":
            return p // self._block
        if self.lengths is not None:
            stops = xp.asarray(self._starts[1:], dtype=p.dtype, **_device(p))
            return _cast(xp, xp.searchsorted(stops, p, side="right"), p.dtype)
        short, longer = divmod(self.length, self.ranks * (2 if self.kind == "zigzag" else 1))
        if self.kind == "zigzag":  # the longer chunks are the last ones
            count = 2 * self.ranks - longer
            edge = count * short
            return xp.where(p < edge, p // max(short, 1), count + (p - edge) // (short + 1))
        edge = longer * (short + 1)  # first position of the shorter chunks
        return xp.where(p < edge, p // (short + 1), longer + (p - edge) // max(short, 1))

    # ------------------------------------------------------------------ arrays

    def shard(self, x: Array, rank: int, axis: int = -2) -> Array:
        """The part of ``x`` that a rank holds.

        Parameters
        ----------
        x : array
            Of any library and dtype; axis ``axis`` is the sequence, of length ``length``.
        rank : int
            Whose part.
        axis : int
            Sequence axis; a 1-d array needs axis=0.

        Returns
        -------
        array
            A view wherever the library has views and one slice suffices (contiguous, striped with
            block 1); else a copy of this part. ``x`` as a whole is never copied.

        Raises
        ------
        ValueError
            If the sequence axis of ``x`` does not fit.
        IndexError
            If the rank is outside [0, ranks).
        """
        return cut(self, x, self._rank(rank), axis)

    def unshard(self, shards: Sequence[Array], axis: int = -2) -> Array:
        """The whole array, given every rank's shard in rank order: exact inverse of `shard`.

        Raises
        ------
        ValueError
            If the shards do not fit this layout or each other.
        """
        return join(self, shards, axis)

    def describe(self) -> str:
        """Which ranks hold what, as a few lines of text, however many ranks there are."""
        lines = [self._line(rank) for rank in range(self.ranks) if rank < 8 or rank == self.ranks - 1]
        if self.ranks > 9:
            lines.insert(-1, f"... {self.ranks - 9} more ranks ...")
        return "\n".join([repr(self), *lines])

    # ------------------------------------------------------------------ private

    def _line(self, rank: int) -> str:
        if self.kind == "striped" and self.block == 1:
            text = [str(p) for p in range(rank, self.length, self.ranks)[:4]]
        elif self.kind == "striped":
            starts = range(rank * self.block, self.length, self.block * self.ranks)[:4]
            text = [f"[{p}, {min(p + self.block, self.length)})" for p in starts]
        else:
            text = [f"[{r.start}, {r.stop})" for r in self.ranges(rank)]
        if len(text) > 3:
            text[3:] = ["..."]
        return f"rank {rank} holds {self.count(rank)}: {' '.join(text) or 'nothing'}"

    def _rank(self, rank: int) -> int:
        rank = _whole("rank", rank, None)
        if not 0 <= rank < self.ranks:
            raise IndexError(f"rank must be in [0, {self.ranks}). Got {rank}. Give a rank of {self!r}.")
        return rank

    def _traceable(self, xp: Any, rank: Any) -> Any:
        """A host rank as a checked int, an array of ranks as default integers."""
        if not is_array_api_obj(rank) or isinstance(rank, np.generic):
            return self._rank(rank)
        if isinstance(rank, np.ndarray) and rank.size:
            self._rank(np.min(rank))
            self._rank(np.max(rank))
        return self._ints(xp, "rank", rank)

    def _ints(self, xp: Any, name: str, value: Any) -> Array:
        """``value`` in the namespace's default integer dtype, wide enough for this layout."""
        value = xp.asarray(value)
        if not dtype_name(value.dtype).startswith(("int", "uint")):
            raise TypeError(f"{name} must be integers. Got dtype {value.dtype}. Convert them first.")
        dtype = xp.asarray(0).dtype
        if self.length + self._block * self.ranks > xp.iinfo(dtype).max:
            raise ValueError(
                f"positions of {self!r} must fit into the default integer dtype. Got {dtype_name(dtype)}. "
                "Use a wider one (JAX: jax_enable_x64)."
            )
        return _cast(xp, value, dtype)

    @property
    def _block(self) -> int:
        """Block size, cut to what matters so that products stay small."""
        return min(self.block, max(self.length, 1))

    @property
    def deal(self) -> tuple[int, int, int]:
        """Striped: effective block size, whole rounds of the deal, positions left after them."""
        return self._block, *divmod(self.length, self._block * self.ranks)

    def _chunks(self, rank: Any) -> tuple[Any, ...]:
        """Numbers of the chunks a rank holds; not for striped."""
        return (rank, 2 * self.ranks - 1 - rank) if self.kind == "zigzag" else (rank,)

    def chunk_start(self, chunk: Any, xp: Any = np) -> Any:
        """First position of a chunk, which is where the one before it stops: int for int, else an array."""
        if self.lengths is not None:
            if isinstance(chunk, int):
                return self._starts[chunk]
            table = xp.asarray(self._starts, dtype=chunk.dtype, **_device(chunk))
            return xp.reshape(xp.take(table, xp.reshape(chunk, (-1,))), chunk.shape)
        short, longer = divmod(self.length, self.ranks * (2 if self.kind == "zigzag" else 1))
        number = chunk - (2 * self.ranks - longer) if self.kind == "zigzag" else chunk
        extra = min(max(number, 0), longer) if isinstance(number, int) else xp.clip(number, 0, longer)
        return chunk * short + extra

    def _chunk_starts(self) -> np.ndarray[Any, np.dtype[np.int64]]:
        """First position of each chunk, and the end of the last; not for striped."""
        chunks = self.ranks * (2 if self.kind == "zigzag" else 1)
        starts: np.ndarray[Any, np.dtype[np.int64]] = self.chunk_start(np.arange(chunks + 1), np)
        return starts

    def _of_ranks(self, join: np.ufunc, of_chunks: np.ndarray) -> np.ndarray:
        """What each rank has, from what its chunk has, or its two."""
        P = self.ranks
        return join(of_chunks[:P], of_chunks[: P - 1 : -1]) if self.kind == "zigzag" else of_chunks

    @cached_property
    def _starts(self) -> tuple[int, ...]:
        return tuple(accumulate(self.lengths or (), initial=0))


def _whole(name: str, value: Any, least: int | None) -> int:
    """A true integer, at least ``least``."""
    try:
        if isinstance(value, bool | np.bool_):
            raise TypeError
        whole = operator.index(value)
    except TypeError:
        raise TypeError(f"{name} must be an integer. Got {_short(value)}. Convert it with int().") from None
    if least is not None and whole < least:
        raise ValueError(f"{name} must be at least {least}. Got {whole}. Give a number that is not smaller.")
    return whole


def _short(value: Any) -> str:
    shape = getattr(value, "shape", None)
    return f"{value!r:.60}" if not shape else f"an array of shape {tuple(shape)}"


def _cast(xp: Any, x: Array, dtype: Any) -> Array:
    if x.dtype == dtype:
        return x
    return x.astype(dtype) if isinstance(x, np.ndarray) else xp.astype(x, dtype)


def _clip(xp: Any, x: Array, top: Any) -> Array:
    """``x`` clipped to [0, top]; ``top`` an int, or an array that broadcasts against x."""
    if isinstance(x, np.ndarray):
        return np.minimum(np.maximum(x, 0), top)  # np.clip takes several times as long to begin
    x = xp.where(x > 0, x, xp.zeros_like(x))
    return xp.where(x < top, x, top + xp.zeros_like(x))


def _device(like: Array) -> dict[str, Any]:
    """Keyword that puts a table where ``like`` is; the others place constants by themselves."""
    return {"device": like.device} if is_torch_array(like) else {}
