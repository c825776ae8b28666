"""Steps: tiles, classes and masks against the table of who sees whom."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ringcore as rc
import ringcore.step
from ringcore.layout import Layout
from ringcore.meter import Meter
from ringcore.step import Kind, Step, default_scale, local_step, lower, needed
from ringcore.testing.drawn_mask import DrawnMask
from ringcore.testing.strategies import layouts, masks
from tests.core.steps import Known, known_step, known_steps, table_of
from tests.libraries import Library
from tests.profiles import examples

BATCH, HEADS = (2,), 3


def kind_of(tile: np.ndarray) -> Kind:
    if not tile.any():
        return Kind.EMPTY
    return Kind.FULL if tile.all() else Kind.PARTIAL


def allowed(kind: Kind, tile: np.ndarray, dense: bool) -> bool:
    """Exact, but for dense masks, which are not looked at: PARTIAL then."""
    exact = kind_of(tile)
    return kind is exact or (dense and kind is Kind.PARTIAL)


@given(known=known_steps(BATCH, HEADS, max_length=14))
def test_every_tile_is_classed_as_the_table_says(known: Known) -> None:
    step, table = known.step, known.table
    L_q, L_k = table.shape[-2:]
    for q0 in range(L_q):
        for q1 in {q0 + 1, min(q0 + 3, L_q), L_q}:
            for k0 in range(L_k):
                for k1 in {k0 + 1, min(k0 + 4, L_k), L_k}:
                    tile = table[..., q0:q1, k0:k1]
                    assert allowed(step.kind(q0, q1, k0, k1), tile, bool(step.dense)), (q0, q1, k0, k1)


@given(known=known_steps(BATCH, HEADS), height=st.integers(1, 9), width=st.integers(1, 9))
def test_tiles_are_exactly_those_that_are_not_empty_in_order_of_keys(
    known: Known, height: int, width: int
) -> None:
    step, table = known.step, known.table
    L_q, L_k = table.shape[-2:]
    for q0 in range(0, L_q, height):
        q1 = min(q0 + height, L_q)
        got = list(step.tiles(q0, q1, width))
        starts = [k0 for k0, _, _ in got]
        assert starts == sorted(set(starts))
        assert all(k0 % width == 0 and k1 == min(k0 + width, L_k) for k0, k1, _ in got)
        for k0 in range(0, L_k, width):
            tile = table[..., q0:q1, k0 : k0 + width]
            kind = {k0: kind for k0, _, kind in got}.get(k0, Kind.EMPTY)
            assert allowed(kind, tile, bool(step.dense)), (q0, k0)


LAYOUTS = [
    Layout.contiguous(length=23, ranks=3),
    Layout.zigzag(length=23, ranks=3),
    Layout.striped(length=23, ranks=3),
    Layout.striped(length=23, ranks=3, block=2),
    Layout.from_lengths([20, 0, 3]),
]


@pytest.mark.parametrize("layout", LAYOUTS, ids=repr)
def test_causal_tiles_of_every_layout(layout: Layout) -> None:
    """Strided shards too: local intervals need no stride."""
    counts = dict.fromkeys(Kind, 0)
    for q_rank in range(3):
        for k_rank in range(3):
            q_pos, k_pos = layout.positions(q_rank), layout.positions(k_rank)
            step = local_step(lower(rc.causal(), q_pos, 23), q_pos, layout, k_rank, 1.0, (), Meter())
            for q0 in range(len(q_pos)):
                for k0 in range(len(k_pos)):
                    tile = k_pos[None, k0 : k0 + 2] <= q_pos[q0 : q0 + 2, None]
                    kind = step.kind(q0, min(q0 + 2, len(q_pos)), k0, min(k0 + 2, len(k_pos)))
                    assert kind is kind_of(tile)
                    counts[kind] += 1
    assert min(counts.values()) > 0


@settings(max_examples=examples(150))
@given(data=st.data())
def test_visible_is_the_table_in_any_library(xp: Library, data: st.DataObject) -> None:
    longest = 3 if xp.name == "jax" else 24
    known = data.draw(known_steps(BATCH, HEADS, max_length=longest, as_array=xp.asarray))
    L_q, L_k = known.table.shape[-2:]
    q0, k0 = data.draw(st.integers(0, L_q)), data.draw(st.integers(0, L_k))
    q1, k1 = data.draw(st.integers(q0, L_q)), data.draw(st.integers(k0, L_k))
    got = xp.numpy(known.step.visible(xp.xp, q0, q1, k0, k1))
    want = known.table[..., q0:q1, k0:k1]
    shape = np.broadcast_shapes(got.shape, want.shape)
    assert got.dtype == bool and got.shape[-2:] == want.shape[-2:]
    np.broadcast_shapes(got.shape, (*BATCH, HEADS, *want.shape[-2:]))  # raises if it does not fit
    assert np.array_equal(np.broadcast_to(got, shape), np.broadcast_to(want, shape))


# ---------------------------------------------------------------------- one head of it


@given(known=known_steps((2, 3), 4, max_length=8), one_head=st.booleans())
def test_only_picks_one_batch_row_and_some_heads(known: Known, one_head: bool) -> None:
    L_q, L_k = known.table.shape[-2:]
    whole = np.broadcast_to(known.table, (2, 3, 4, L_q, L_k))
    heads = slice(2, 3) if one_head else slice(1, 4)
    for b0 in range(2):
        for b1 in range(3):
            part = known.step.only((b0, b1), heads)
            want = whole[b0, b1, heads]
            assert part.lo.ndim - 2 <= 1, "no batch axes are left"
            got = part.visible(np, 0, L_q, 0, L_k)
            assert np.array_equal(np.broadcast_to(got, want.shape), want)
            again = part.only((), slice(0, 1))
            assert np.array_equal(again.visible(np, 0, L_q, 0, L_k).reshape(L_q, L_k), want[0])
            assert (part.meter, part.scale) == (known.step.meter, known.step.scale)


LEADS = [(), (1,), (4,), (3, 1), (3, 4), (1, 4), (2, 3, 1), (2, 1, 4), (1, 1, 1), (2, 3, 4), (1, 3, 4)]


@pytest.mark.parametrize("lead", LEADS, ids=str)
def test_only_for_every_lead_that_broadcasts_to_batch_and_heads(lead: tuple[int, ...]) -> None:
    """(\\*B, H) = (2, 3, 4), by broadcasting first and picking afterwards."""
    L, rng = 5, np.random.default_rng(0)
    lo = rng.integers(0, 3, (2, *lead, L))
    hi = lo + rng.integers(0, 3, (2, *lead, L))
    dense = rng.random((*lead, L, 7)) < 0.5
    step = Step(lo, hi, np.arange(L), np.arange(7), 1.0, (dense,))
    whole = np.broadcast_to(step.visible(np, 0, L, 0, 7), (2, 3, 4, L, 7))
    for heads in (slice(3, 4), slice(0, 2), slice(0, 4)):
        for row in np.ndindex(2, 3):
            want = whole[(*row, heads)]
            part = step.only(row, heads)
            assert np.array_equal(np.broadcast_to(part.visible(np, 0, L, 0, 7), want.shape), want)


# ---------------------------------------------------------------------- traced


def test_a_traced_step_skips_nothing() -> None:
    known = known_step(DrawnMask(None), LAYOUTS[0], LAYOUTS[0])
    step = replace(known.step, traced=True)
    assert list(step.tiles(0, 2, 3)) == [(0, 3, Kind.PARTIAL), (3, 6, Kind.PARTIAL), (6, 8, Kind.PARTIAL)]


def test_visible_traces() -> None:
    jax = pytest.importorskip("jax", reason="jax is not installed")
    import jax.numpy as jnp

    lo, hi = jnp.asarray([[0, 1, 5], [3, 5, 5]]), jnp.asarray([[2, 4, 5], [4, 5, 5]])
    dense = jnp.asarray(np.arange(15).reshape(3, 5) % 2 == 0)

    def run(lo: Any, hi: Any, dense: Any, k_pos: Any) -> Any:
        return Step(lo, hi, jnp.arange(3), k_pos, 1.0, (dense,), traced=True).visible(jnp, 0, 3, 1, 5)

    got = np.asarray(jax.jit(run)(lo, hi, dense, jnp.arange(5)))
    want = np.array([[0, 1, 0, 1, 0], [0, 1, 1, 1, 0], [0, 0, 0, 0, 0]], bool) & np.asarray(dense)
    assert np.array_equal(got, want[:, 1:])


# ---------------------------------------------------------------------- from masks and layouts


@settings(max_examples=examples(150))
@given(data=st.data())
def test_needed_names_the_ranks_whose_keys_some_query_sees(data: st.DataObject) -> None:
    S_q, k_layout = data.draw(st.integers(0, 20)), data.draw(layouts())
    drawn = data.draw(masks(S_q, k_layout.length, (2,), dense=False))
    q_pos = np.array(sorted(data.draw(st.permutations(range(S_q)))[: S_q // 2 + 1]), np.int64)
    mask = rc.full() if drawn.mask is None else drawn.mask
    table = table_of(drawn.visible, q_pos, np.arange(k_layout.length))
    want = [bool(table[..., k_layout.positions(rank)].any()) for rank in range(k_layout.ranks)]
    assert needed(lower(mask, q_pos, k_layout.length), k_layout).tolist() == want


def test_needed_of_every_interval_of_every_layout() -> None:
    """Runs of chunks that go on at the first rank, all the way around, and over ranks that hold nothing."""
    S = 13
    kinds = [Layout.contiguous, Layout.zigzag, Layout.striped, partial(Layout.striped, block=3)]
    every = [kind(length=S, ranks=ranks) for kind in kinds for ranks in (1, 2, 3, 5, 16)]
    for layout in [*every, Layout.from_lengths([0, 4, 0, 0, 9, 0])]:
        held = [set(layout.positions(rank).tolist()) for rank in range(layout.ranks)]
        for a in range(S):
            for b in range(a + 1, S + 1):
                seen = lower(rc.keys(a, b) | rc.keys(0, a // 4), np.zeros(1, np.int64), S)
                visible = set(range(a, b)) | set(range(a // 4))
                assert needed(seen, layout).tolist() == [bool(visible & mine) for mine in held], (
                    layout,
                    a,
                    b,
                )


def test_lowering_in_pieces_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pieces use different numbers of slots: the fewer are filled up."""
    mask = (rc.global_tokens([0, 5, 6, 11]) & rc.padding([12, 7])) | rc.window(1, 0)
    q_pos = np.array([0, 1, 3, 4, 5, 9, 10, 11])
    whole = lower(mask, q_pos, 12)
    monkeypatch.setattr(ringcore.step, "_ROWS_LOWERED_AT_ONCE", 1)
    assert len({lower(mask, q_pos[i : i + 1], 12).lo.shape[0] for i in range(8)}) > 1
    pieces = lower(mask, q_pos, 12)
    key = np.arange(12)

    def table(x: Any) -> np.ndarray:
        return np.any((key >= x.lo[..., None]) & (key < x.hi[..., None]), axis=0)

    assert np.array_equal(table(pieces), table(whole))
    assert np.all(np.where(pieces.lo == pieces.hi, pieces.lo, 12) == 12)
    assert lower(mask, q_pos[:0], 12).lo.shape[1:] == (2, 1, 0)


def test_default_scale_is_that_of_the_paper() -> None:
    assert default_scale(64) == 0.125
