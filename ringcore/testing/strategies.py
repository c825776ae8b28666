"""Hypothesis strategies for layouts, masks and whole attention problems. Needs hypothesis.

All shrink to what is simplest: one rank, no token, no mask, seed 0. Sizes are small, so that hundreds of
examples take seconds; the hard cases (`ringcore.testing.HARD_CASES`) come up by design, not by luck.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from hypothesis import strategies as st

from ringcore.layout import Layout
from ringcore.testing.drawn_mask import And, Call, DenseBits, DrawnMask, Not, Or, Tree
from ringcore.testing.problem import Poison, Problem

__all__ = ["attention_problems", "layouts", "masks"]

_HEADS = ((1, 1), (2, 1), (2, 2), (4, 2), (3, 1), (6, 2), (3, 3), (4, 1), (8, 1), (8, 2), None)
_DIMS = (2, 1, 3, 4, 8, 16)
_SCALES = (None, 0.5, 1.0, -0.25, 2.0, -1.5, 0.0)
_FILLS = (None, None, None, 0.3, 0.7)
_BATCHES = ((), (1,), (2,), (2, 1), (1, 3), (2, 2))
_TILES = (None, (16, 8), (5, 4), (2, 9), (7, 1))
_CONSTRUCTORS = ("full", "causal", "window", "documents", "prefix", "keys", "padding", "global_tokens")


def _strategy(
    value: int | st.SearchStrategy[int] | None, otherwise: st.SearchStrategy[int]
) -> st.SearchStrategy[int]:
    if value is None:
        return otherwise
    return st.just(value) if isinstance(value, int) else value


@st.composite
def layouts(
    draw: st.DrawFn,
    *,
    length: int | st.SearchStrategy[int] | None = None,
    ranks: int | st.SearchStrategy[int] | None = None,
) -> Layout:
    """Layouts of every kind; uneven ones may leave ranks without positions.

    Parameters
    ----------
    length : int or strategy, optional
        Global sequence length S; 0 to 40 by default.
    ranks : int or strategy, optional
        Number of ranks P; 1 to 8 by default.
    """
    P = draw(_strategy(ranks, st.integers(1, 8)))
    S = draw(_strategy(length, _lengths(40)))
    kind = draw(st.sampled_from(["contiguous", "zigzag", "striped", "uneven"]))
    if kind == "zigzag":
        return Layout.zigzag(length=S, ranks=P)
    if kind == "striped":
        return Layout.striped(length=S, ranks=P, block=draw(st.integers(1, 4)))
    if kind == "uneven":
        cuts = sorted(draw(st.lists(st.integers(0, S), min_size=P - 1, max_size=P - 1)))
        return Layout.from_lengths([b - a for a, b in zip([0, *cuts], [*cuts, S], strict=True)])
    return Layout.contiguous(length=S, ranks=P)


@st.composite
def masks(
    draw: st.DrawFn,
    S_q: int,
    S_k: int,
    batch: tuple[int, ...] = (),
    *,
    heads: int | None = None,
    dense: bool = True,
    max_parts: int = 4,
) -> DrawnMask:
    """Masks, each with its meaning as a predicate: no mask, one constructor, or an expression of several.

    Parameters
    ----------
    S_q, S_k : int
        Global numbers of queries and keys.
    batch : tuple of int
        Batch dims \\*B; documents and padding then come with lengths for each row, too.
    heads : int, optional
        Query heads H; dense arrays then come for each head, too.
    dense : bool
        Whether a dense array may be joined.
    max_parts : int
        Constructors in one expression at most.
    """
    parts = draw(st.sampled_from([0, 1, 1, 2, 2, 3, max_parts]))
    tree = _expression(draw, S_q, S_k, batch, min(parts, max_parts)) if parts else None
    if dense and draw(st.sampled_from([False, False, True, False])):
        leads = [()] if heads is None else [(), (heads,), (*batch, heads), (*batch, 1), (heads,)]
        return DrawnMask(tree, DenseBits(draw(st.sampled_from(leads)), draw(st.integers(0, 99))))
    return DrawnMask(tree)


@st.composite
def attention_problems(
    draw: st.DrawFn,
    xp: Any,
    *,
    ranks: int | st.SearchStrategy[int] | None = None,
    max_ranks: int = 8,
    max_length: int = 40,
    dtypes: Sequence[str] = ("float64", "float32"),
    drawn_masks: Callable[[int, int, tuple[int, ...]], st.SearchStrategy[DrawnMask]] | None = None,
    sides: Sequence[str] = ("auto", "kv", "q"),
    ways: Sequence[str] = ("auto", "ring", "direct"),
    tiles: Sequence[tuple[int, int] | None] = _TILES,
    heads: Sequence[tuple[int, int] | None] = _HEADS,
    dims: Sequence[int] = _DIMS,
    scales: Sequence[float | None] = _SCALES,
    fills: Sequence[float | None] = _FILLS,
    poison: bool = False,
) -> Problem:
    """Whole attention problems: any rank count, two layouts, masks, GQA, cross-attention, all axis orders.

    Parameters
    ----------
    xp : module
        Array API namespace of the arrays, as array_api_compat gives it.
    ranks : int or strategy, optional
        Number of ranks P; 1 to ``max_ranks`` by default.
    max_ranks, max_length : int
        Largest P and S.
    dtypes : sequence of str
        To draw from.
    drawn_masks : callable, optional
        ``(S_q, S_k, batch) -> strategy`` of `DrawnMask`; `masks` by default.
    sides, ways : sequence of str
        What `ringcore.attention` is asked for. With a dense mask the keys travel, so "q" is not drawn.
    tiles : sequence of (int, int) or None
        Score tiles of the kernels, see `ringcore.testing.solve`.
    heads : sequence of (int, int) or None
        Query heads H and key heads G; None is 2-d arrays.
    dims : sequence of int
        Head dims D.
    scales : sequence of float or None
        Factors of the scores; None is the library's default.
    fills : sequence of float or None
        None is normal values; a number is the value of all inputs. All these have defaults that hold what
        kernels treat differently; restrict them to what yours can do.
    poison : bool
        Whether to put a NaN or inf somewhere into the inputs.

    Examples
    --------
    >>> import numpy
    >>> from hypothesis import given, settings
    >>> from ringcore.testing import check_attention, solve
    >>> @settings(max_examples=5, deadline=None)
    ... @given(attention_problems(numpy, max_ranks=3))
    ... def test_ring(problem):
    ...     check_attention(problem, solve(problem))
    >>> test_ring()
    """
    P = draw(_strategy(ranks, st.integers(1, max_ranks)))
    q_layout = draw(layouts(length=_lengths(max_length), ranks=P))
    keys_are = draw(st.sampled_from(["the same", "laid out otherwise", "another sequence"]))
    k_layout = q_layout
    if keys_are != "the same":
        other = keys_are == "another sequence"
        k_layout = draw(layouts(length=_lengths(max_length) if other else q_layout.length, ranks=P))
    H_G = draw(st.sampled_from(list(heads)))
    batch = () if H_G is None else draw(st.sampled_from(_BATCHES))
    S_q, S_k = q_layout.length, k_layout.length
    if drawn_masks is not None:
        mask = draw(drawn_masks(S_q, S_k, batch))
    else:
        mask = draw(masks(S_q, S_k, batch, heads=None if H_G is None else H_G[0]))
    side = draw(st.sampled_from([s for s in sides if s != "q" or mask.dense is None]))
    D = draw(st.sampled_from(list(dims)))
    problem = Problem(
        xp=xp,
        q_layout=q_layout,
        k_layout=k_layout,
        mask=mask,
        dtype=draw(st.sampled_from(list(dtypes))),
        batch=batch,
        heads=H_G,
        D=D,
        E=draw(st.sampled_from([2, D, 1, 5])),
        scale=draw(st.sampled_from(list(scales))),
        spread=draw(st.sampled_from([1.0, 10.0, 100.0, 0.0])),
        fill=draw(st.sampled_from(list(fills))),
        side=side,
        way=draw(st.sampled_from(list(ways))),
        tile=draw(st.sampled_from(list(tiles))),
        seq_axis=-2 if H_G is None else draw(st.sampled_from([-2, -3])),
        with_dlse=draw(st.sampled_from([True, False, True])),
        seed=draw(st.integers(0, 2**32 - 1)),
    )
    return replace(problem, poison=_poison(draw, problem)) if poison else problem


# ---------------------------------------------------------------------- parts


def _lengths(most: int) -> st.SearchStrategy[int]:
    """Half of them tiny, where P > S and ranks are empty."""
    return st.one_of(st.integers(0, min(7, most)), st.integers(0, most))


def _expression(draw: st.DrawFn, S_q: int, S_k: int, batch: tuple[int, ...], parts: int) -> Tree:
    """An expression of so many constructors, any part of it complemented now and then."""
    if parts == 1:
        tree: Tree = _constructor(draw, S_q, S_k, batch)
    else:
        cut = draw(st.integers(1, parts - 1))
        left = _expression(draw, S_q, S_k, batch, cut)
        right = _expression(draw, S_q, S_k, batch, parts - cut)
        tree = And(left, right) if draw(st.booleans()) else Or(left, right)
    return Not(tree) if draw(st.sampled_from([False, False, False, True])) else tree


def _constructor(draw: st.DrawFn, S_q: int, S_k: int, batch: tuple[int, ...]) -> Call:
    longest = max(S_q, S_k)
    name = draw(st.sampled_from(_CONSTRUCTORS))
    match name:
        case "causal":
            near = draw(st.booleans())
            most = 3 if near else longest + 1
            return Call(name, (draw(st.integers(-most, most)),))
        case "window":
            reach = [None, 0, 1, 2, 3, longest // 3, longest]
            return Call(name, (draw(st.sampled_from(reach)), draw(st.sampled_from(reach))))
        case "documents":
            return _documents(draw, S_q, S_k, batch)
        case "prefix":
            return Call(name, (draw(st.integers(0, S_k + 1)),))
        case "keys":
            start = draw(st.integers(0, S_k + 1))
            return Call(name, (start, draw(st.integers(start, S_k + 2))))
        case "padding":
            return Call(name, (_rows(draw, batch, st.integers(0, S_k + 1)),))
        case "global_tokens":
            return Call(name, (tuple(draw(st.lists(st.integers(0, longest), min_size=1, max_size=3))),))
        case _:
            return Call("full")


def _documents(draw: st.DrawFn, S_q: int, S_k: int, batch: tuple[int, ...]) -> Call:
    """Zero lengths, and totals that fall short of S or exceed it, included."""
    n = draw(st.integers(1, 5))
    each_row = len(batch) > 0 and draw(st.booleans())
    rows = batch if each_row else ()

    def lengths(S: int) -> Any:
        return _rows(draw, (*rows, n), st.integers(0, 2 * math.ceil(S / n) + 1))

    if S_q != S_k and draw(st.booleans()):
        return Call("documents", (lengths(S_q), lengths(S_k)))
    return Call("documents", (lengths(max(S_q, S_k)),))


def _rows(draw: st.DrawFn, shape: tuple[int, ...], element: st.SearchStrategy[int]) -> Any:
    """Ints nested in tuples of this shape; a bare int for ()."""
    if not shape:
        return draw(element)
    return tuple(_rows(draw, shape[1:], element) for _ in range(shape[0]))


def _poison(draw: st.DrawFn, problem: Problem) -> Poison | None:
    """In all batch rows and heads, or in one of them."""
    names = [name for name in ("k", "v", "q", "dout", "dlse") if math.prod(problem.shape_of(name))]
    if not problem.with_dlse:
        names = [name for name in names if name != "dlse"]
    if not names:
        return None
    name = draw(st.sampled_from(names))
    shape = problem.shape_of(name) if name == "dlse" else problem.shape_of(name)[:-1]
    value = draw(st.sampled_from([math.nan, math.inf, -math.inf]))
    row = draw(st.none() | st.integers(0, math.prod(shape[:-1]) - 1))
    return Poison(name, draw(st.integers(0, shape[-1] - 1)), value, row)
