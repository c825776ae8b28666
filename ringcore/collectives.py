"""Collective data movement on `Transport.exchange`: scatter, gather, reshard, allreduce, alltoall.

Each function validates on all ranks first (`agree`), so that a wrong call raises the same error
everywhere before data moves; then every rank knows all message sizes and nothing is negotiated.
Results never share memory with the arguments. Empty parts are not sent.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from array_api_compat import array_namespace, device

from ringcore.agree import agree
from ringcore.dtypes import accumulation_dtype, dtype_name, is_supported
from ringcore.layout import Layout
from ringcore.protocols import Array, ArraySpec, Exchange, Send
from ringcore.registry import backend_of
from ringcore.shards import sequence_axis
from ringcore.swap import TAG, check_array, copy_of, empty_of, exclusive, select, spec_of, swap

if TYPE_CHECKING:
    from ringcore.ring import Ring


@exclusive
def scatter(x: Array | None, ring: Ring, layout: Layout, root: int = 0, axis: int = -2) -> Array:
    """Give every rank its shard of an array that one rank has.

    Parameters
    ----------
    x : array, shape (..., S, ...) with S = ``layout.length`` on ``axis``; any dtype
        On ``root``; ignored on the other ranks, which may pass None.
    ring : Ring
    layout : Layout
        Which positions each rank gets.
    root : int, default 0
        The rank that has ``x``.
    axis : int, default -2
        The sequence axis; a 1-d array needs axis=0.

    Returns
    -------
    array, shape (..., L, ...) with L = ``layout.count(ring.rank)``
        A new array of the library of ``x``, with the same bits.

    Raises
    ------
    ValueError, TypeError
        The same on every rank, before data moves: ``x`` is missing, or does not fit the layout, or
        the layout does not fit the ring.

    Notes
    -----
    Collective. Root holds two packed shards besides ``x`` at a time.

    Examples
    --------
    >>> import numpy as np
    >>> import ringcore as rc
    >>> layout = rc.Layout.zigzag(length=6, ranks=2)
    >>> def fn(ring):
    ...     x = np.arange(6) if ring.rank == 0 else None
    ...     return scatter(x, ring, layout, axis=0).tolist()
    >>> rc.run_ranks(2, fn)
    [[0, 4, 5], [1, 2, 3]]
    """
    transport, timeout = ring.transport, ring.timeout

    def check() -> Any:
        _check_root(root, ring)
        _check_layout("layout", layout, ring)
        operator.index(axis)
        if ring.rank != root:
            return None
        if x is None:
            raise ValueError(f"x must be an array on root. Got None on rank {root}. Pass x there.")
        front = _check_length("x", x, axis, layout.length, layout)
        return [front, list(x.shape), array_namespace(x).__name__, dtype_name(x.dtype)]

    _, headers = agree(
        "scatter",
        ring,
        check,
        lambda _: {"root": str(int(root)), "axis": str(int(axis)), "layout": repr(layout)},
        lambda header: header,
    )
    front, shape, library, dtype = cast(tuple[int, list[int], str, str], headers[root])
    like: Array = x if ring.rank == root else empty_of(library, dtype)
    specs = [
        ArraySpec((*shape[:front], layout.count(rank), *shape[front + 1 :]), like.dtype)
        for rank in range(ring.size)
    ]
    if ring.rank != root:
        return swap(ring, {}, {root: specs[ring.rank]}, like)[root]
    backend, before = backend_of(like), None
    for rank in range(ring.size):
        if rank != root and math.prod(specs[rank].shape) > 0:
            wire = backend.pack([layout.shard(x, rank, front)], transport.where)
            wire.ready()
            sent: Exchange = transport.exchange([Send(wire.buffer, rank, TAG)], [])
            del wire
            if before is not None:
                before.wait(timeout)
            before = sent
    own = copy_of(layout.shard(x, root, front))
    if before is not None:
        before.wait(timeout)
    return own


@exclusive
def gather(x: Array, ring: Ring, layout: Layout, root: int = 0, axis: int = -2) -> Array | None:
    """Join all ranks' shards on one rank; the inverse of `scatter`.

    Parameters
    ----------
    x : array, shape (..., L, ...) with L = ``layout.count(ring.rank)`` on ``axis``; any dtype
        This rank's shard.
    ring, layout, root, axis
        As in `scatter`; ``root`` is the rank that gets the result.

    Returns
    -------
    array, shape (..., S, ...), on root
        A new array with the same bits.
    None
        On the other ranks.

    Raises
    ------
    ValueError, TypeError
        The same on every rank, before data moves: a shard does not fit the layout or the others.

    Notes
    -----
    Collective.

    Examples
    --------
    >>> import numpy as np
    >>> import ringcore as rc
    >>> layout = rc.Layout.striped(length=5, ranks=2)
    >>> rc.run_ranks(2, lambda ring: gather(layout.positions(ring.rank), ring, layout, axis=0))
    [array([0, 1, 2, 3, 4]), None]
    """

    def check() -> int:
        _check_root(root, ring)
        _check_layout("layout", layout, ring)
        return _check_length("x", x, axis, layout.count(ring.rank), layout)

    front, _ = agree(
        "gather",
        ring,
        check,
        lambda front: {"root": str(int(root)), "layout": repr(layout), **_facts(x, front)},
    )
    if ring.rank != root:
        swap(ring, {root: x}, {}, x)
        return None
    others = [rank for rank in range(ring.size) if rank != root]
    got = swap(ring, {}, {rank: spec_of(x, front, layout.count(rank)) for rank in others}, x)
    got[root] = copy_of(x)
    return layout.unshard([got[rank] for rank in range(ring.size)], axis=front)


@exclusive
def reshard(x: Array, ring: Ring, old: Layout, new: Layout, axis: int = -2) -> Array:
    """Change the layout of a sharded array.

    Parameters
    ----------
    x : array, shape (..., L, ...) with L = ``old.count(ring.rank)`` on ``axis``; any dtype
        This rank's shard in the old layout.
    ring : Ring
    old, new : Layout
        Of the same length.
    axis : int, default -2
        The sequence axis; a 1-d array needs axis=0.

    Returns
    -------
    array, shape (..., L', ...) with L' = ``new.count(ring.rank)``
        This rank's shard in the new layout: a new array with the same bits.

    Raises
    ------
    ValueError, TypeError
        The same on every rank, before data moves.

    Notes
    -----
    Collective. Only tokens that change rank are sent, in at most one message to each other rank. Who
    owns what follows from the layouts: O(L) work per rank, whatever S is, and no message.

    Examples
    --------
    >>> import numpy as np
    >>> import ringcore as rc
    >>> old, new = rc.Layout.contiguous(length=6, ranks=2), rc.Layout.zigzag(length=6, ranks=2)
    >>> rc.run_ranks(2, lambda ring: reshard(old.positions(ring.rank), ring, old, new, axis=0))
    [array([0, 4, 5]), array([1, 2, 3])]
    """

    def check() -> int:
        _check_layout("old", old, ring)
        _check_layout("new", new, ring)
        if old.length != new.length:
            raise ValueError(
                f"old and new must be of the same length. Got {old!r} and {new!r}. "
                "A sequence keeps its positions when its layout changes."
            )
        return _check_length("x", x, axis, old.count(ring.rank), old)

    front, _ = agree(
        "reshard",
        ring,
        check,
        lambda front: {"old layout": repr(old), "new layout": repr(new), **_facts(x, front)},
    )
    leaving = _by_owner(old.positions(ring.rank), new)
    coming = _by_owner(new.positions(ring.rank), old)
    sends = {to: select(x, index, front) for to, index in leaving.items() if to != ring.rank}
    specs = {src: spec_of(x, front, len(index)) for src, index in coming.items() if src != ring.rank}
    got = swap(ring, sends, specs, x)
    if ring.rank in coming:
        got[ring.rank] = select(x, leaving[ring.rank], front)
    if not coming:
        return copy_of(select(x, np.arange(0), front))
    if len(coming) == 1:
        return copy_of(*got.values()) if ring.rank in coming else next(iter(got.values()))
    joined = array_namespace(x).concat([got[rank] for rank in coming], axis=front)
    return select(joined, np.argsort(np.concatenate(list(coming.values()))), front)


@exclusive
def allreduce(x: Array, ring: Ring) -> Array:
    """Sum the arrays of all ranks; every rank gets the same bits.

    Parameters
    ----------
    x : array, any shape, of numbers
        Same shape and dtype on every rank.
    ring : Ring

    Returns
    -------
    array, shape and dtype of ``x``
        The sum in rank order, a new array. 16-bit floats are summed in float32 and rounded once;
        integers wrap around.

    Raises
    ------
    ValueError, TypeError
        The same on every rank, before data moves: shapes or dtypes differ, or are not numbers.

    Notes
    -----
    Collective. Each rank sums one piece of 1/P, then all pieces are gathered: a rank sends
    2 (P-1)/P times the size of ``x``.

    Examples
    --------
    >>> import numpy as np
    >>> import ringcore as rc
    >>> rc.run_ranks(3, lambda ring: allreduce(np.asarray([1, ring.rank]), ring).tolist())
    [[3, 3], [3, 3], [3, 3]]
    """

    def check() -> None:
        check_array("x", x)
        if dtype_name(x.dtype) == "bool":
            raise TypeError("x must hold numbers to be summed. Got dtype bool. Convert it, say to int32.")

    facts = lambda _: {"shape": str(tuple(x.shape)), "dtype": dtype_name(x.dtype)}  # noqa: E731
    agree("allreduce", ring, check, facts)
    xp, rank, ranks = array_namespace(x), ring.rank, range(ring.size)
    size = math.prod(x.shape)
    if ring.size == 1 or size == 0:
        return copy_of(x)
    edges = [size * r // ring.size for r in range(ring.size + 1)]
    specs = [ArraySpec((edges[r + 1] - edges[r],), x.dtype) for r in ranks]
    flat = xp.reshape(x, (size,))
    parts = {r: flat[edges[r] : edges[r + 1]] for r in ranks}
    mine = parts.pop(rank)
    got = {**swap(ring, parts, dict.fromkeys(parts, specs[rank]), x), rank: mine}
    wide = accumulation_dtype(xp, x.dtype) if is_supported(x.dtype) else x.dtype
    total = xp.astype(got[0], wide)
    for r in ranks[1:]:
        total = total + xp.astype(got.pop(r), wide)
    total = xp.astype(total, x.dtype)
    sums = {**swap(ring, dict.fromkeys(parts, total), {r: specs[r] for r in parts}, x), rank: total}
    return xp.reshape(xp.concat([sums[r] for r in ranks]), x.shape)


@exclusive
def alltoall(arrays: Sequence[Array], ring: Ring) -> list[Array]:
    """Send one array to each rank, and get one from each.

    Parameters
    ----------
    arrays : sequence of P arrays, of any shapes and dtypes
        ``arrays[r]`` goes to rank r. One library on all ranks.
    ring : Ring

    Returns
    -------
    list of P arrays
        What ranks 0 ... P-1 have sent here: new arrays with the same bits, on the device of
        ``arrays[ring.rank]``.

    Raises
    ------
    ValueError, TypeError
        The same on every rank, before data moves.

    Notes
    -----
    Collective. Shapes and dtypes travel in a header first.

    Examples
    --------
    >>> import numpy as np
    >>> import ringcore as rc
    >>> def fn(ring):
    ...     arrays = [np.asarray([ring.rank] * to) for to in range(ring.size)]
    ...     return [x.tolist() for x in alltoall(arrays, ring)]
    >>> rc.run_ranks(3, fn)
    [[[], [], []], [[0], [1], [2]], [[0, 0], [1, 1], [2, 2]]]
    """

    def check() -> Any:
        if not isinstance(arrays, (list, tuple)) or len(arrays) != ring.size:
            got = f"{len(arrays)}" if isinstance(arrays, (list, tuple)) else type(arrays).__name__
            raise ValueError(f"arrays must be a list of one array for each of {ring.size} ranks. Got {got}.")
        for to, x in enumerate(arrays):
            check_array(f"arrays[{to}]", x)
        return array_namespace(*arrays)

    xp, headers = agree(
        "alltoall",
        ring,
        check,
        lambda xp: {"array library": xp.__name__},
        lambda _: [[list(x.shape), dtype_name(x.dtype)] for x in arrays],
    )
    own = arrays[ring.rank]
    result = {ring.rank: copy_of(own)}
    others = [rank for rank in range(ring.size) if rank != ring.rank]
    likes, specs = {}, {}
    for source in others:
        shape, dtype = headers[source][ring.rank]  # type: ignore[index]
        likes[source] = empty_of(xp.__name__, dtype, device(own))
        specs[source] = ArraySpec(tuple(shape), likes[source].dtype)
    result |= swap(ring, {to: arrays[to] for to in others}, specs, likes)
    return [result[rank] for rank in range(ring.size)]


def _by_owner(positions: np.ndarray, layout: Layout) -> dict[int, np.ndarray]:
    """For each rank that holds some of these positions in ``layout``: which of them, as indices."""
    owner = layout.owner(positions)
    order = np.argsort(owner, kind="stable")
    ranks, starts = np.unique(owner[order], return_index=True)
    return dict(zip(ranks.tolist(), np.split(order, starts[1:]), strict=True)) if len(ranks) else {}


def _facts(x: Array, axis: int) -> dict[str, str]:
    shape = [*x.shape]
    shape[axis] = "L"
    return {"sequence axis": str(axis), "shape": str(tuple(shape)), "dtype": dtype_name(x.dtype)}


def _check_length(name: str, x: Array, axis: int, length: int, layout: Layout) -> int:
    """Check an array whose sequence axis has this length; the axis counted from the front."""
    check_array(name, x)
    front = sequence_axis(name, x, axis)
    if x.shape[front] != length:
        raise ValueError(
            f"{name} must have {length} positions on axis {front} to fit {layout!r}. "
            f"Got shape {tuple(x.shape)}. Pass axis= of the sequence, or the layout that {name} has."
        )
    return front


def _check_layout(name: str, layout: Layout, ring: Ring) -> None:
    if not isinstance(layout, Layout):
        raise TypeError(f"{name} must be a ringcore.Layout. Got {type(layout).__name__}.")
    if layout.ranks != ring.size:
        raise ValueError(
            f"{name} must be for the ranks of the ring, {ring.size}. Got {layout!r}. "
            "Make it with ranks=ring.size."
        )


def _check_root(root: int, ring: Ring) -> None:
    if not 0 <= operator.index(root) < ring.size:
        raise ValueError(f"root must be a rank, in [0, {ring.size}). Got {root}.")
