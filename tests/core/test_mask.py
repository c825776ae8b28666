"""Masks: lowered intervals against the predicate of one query and one key."""

from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ringcore as rc
from ringcore.intervals import Intervals
from ringcore.mask import Mask
from ringcore.testing.drawn_mask import names, per_row
from ringcore.testing.strategies import masks
from tests.core.steps import table_of
from tests.core.test_intervals import assert_canonical
from tests.libraries import Library
from tests.profiles import examples


def visible(lowered: Intervals, S_k: int) -> np.ndarray:
    """Intervals (n, \\*lead, L_q) as bools (\\*lead, L_q, S_k)."""
    lo, hi = (np.asarray(x)[..., None] for x in lowered)
    key = np.arange(S_k)
    return np.any((key >= lo) & (key < hi), axis=0)


def table(mask: Mask, S_q: int, S_k: int) -> np.ndarray:
    return visible(mask.lower(np, np.arange(S_q), S_k), S_k)


# ---------------------------------------------------------------------- meaning


@settings(max_examples=examples(200))
@given(data=st.data())
def test_lower_says_what_the_predicate_says_at_any_positions(xp: Library, data: st.DataObject) -> None:
    few = xp.name == "jax"  # compiles for each shape
    S_q, S_k = (data.draw(st.sampled_from((5,) if few else (0, 1, 5, 23))) for _ in "qk")
    batch = data.draw(st.sampled_from([(), (2,)] if few else [(), (2,), (2, 3)]))
    drawn = data.draw(masks(S_q, S_k, batch, dense=False))
    mask = rc.full() if drawn.mask is None else drawn.mask
    stride = 1 if few else data.draw(st.integers(1, 3))
    q_pos = np.arange(S_q)[::stride]
    lowered = mask.lower(xp.xp, xp.asarray(q_pos), S_k)
    lo, hi = xp.numpy(lowered.lo), xp.numpy(lowered.hi)
    assert_canonical(Intervals(lo, hi), S_k)
    assert lo.shape[1:] == (*mask.lead, len(q_pos))
    want = table_of(drawn.visible, q_pos, np.arange(S_k))
    assert np.array_equal(
        visible(Intervals(lo, hi), S_k), np.broadcast_to(want, (*mask.lead, *want.shape[-2:]))
    )


def test_the_masks_drawn_above_are_of_every_kind() -> None:
    seen: dict[str, int] = {}

    @settings(max_examples=300, derandomize=True, database=None)
    @given(masks(23, 23, (2,), dense=False))
    def draw(drawn: Any) -> None:
        for name in [*names(drawn.tree), *(["per row"] if per_row(drawn.tree) else [])]:
            seen[name] = seen.get(name, 0) + 1

    draw()
    expected = {"full", "causal", "window", "documents", "prefix", "keys", "padding", "global_tokens"}
    assert set(seen) == expected | {"&", "|", "~", "per row"}
    assert min(seen.values()) >= 5, seen


# Written out by hand: rows are queries, columns keys.
TABLES = [
    (rc.full(), ["111", "111", "111"]),
    (rc.causal(), ["100", "110", "111"]),
    (rc.causal(1), ["110", "111", "111"]),
    (rc.causal(-2), ["000", "000", "100"]),
    (rc.window(1, 0), ["100", "110", "011"]),
    (rc.window(0, None), ["111", "011", "001"]),
    (rc.window(None, None), ["111", "111", "111"]),
    (rc.keys(1, 2), ["010", "010", "010"]),
    (rc.keys(1, 99), ["011", "011", "011"]),
    (rc.keys(2, 2), ["000", "000", "000"]),
    (rc.prefix(1), ["100", "100", "100"]),
    (rc.prefix(0), ["000", "000", "000"]),
    (rc.causal() | rc.prefix(2), ["110", "110", "111"]),
    (rc.documents([1, 1]), ["100", "010", "000"]),
    (rc.documents([2, 0, 5]), ["110", "110", "001"]),
    (rc.documents([1, 2], [2, 0]), ["110", "000", "000"]),
    (rc.padding(2), ["110", "110", "110"]),
    (rc.padding(99), ["111", "111", "111"]),
    (rc.global_tokens([1, 1]), ["010", "111", "010"]),
    (rc.global_tokens([0, 2, 7]), ["111", "101", "111"]),
    (~rc.causal(), ["011", "001", "000"]),
    (rc.causal() & ~rc.window(0, 0), ["000", "100", "110"]),
    (~(rc.window(1, 1) & rc.keys(0, 2)), ["001", "001", "101"]),
]


@pytest.mark.parametrize(("mask", "rows"), TABLES, ids=lambda x: repr(x) if isinstance(x, Mask) else "")
def test_small_tables(mask: Mask, rows: list[str]) -> None:
    assert np.array_equal(table(mask, 3, 3), [[c == "1" for c in row] for row in rows])


def test_rows_of_a_batch() -> None:
    mask = rc.documents([[1, 2], [3, 0]]) & rc.padding([3, 2])
    assert mask.lead == (2, 1)
    assert table(mask, 3, 3).astype(int).tolist() == [
        [[[1, 0, 0], [0, 1, 1], [0, 1, 1]]],
        [[[1, 1, 0], [1, 1, 0], [1, 1, 0]]],
    ]


FAR = 10**30
WRAPS = 2**63 - 2  # added to a position other than 0 it is a negative int64


@pytest.mark.parametrize(("mask", "counts"), [
    (rc.causal(FAR), [9, 9, 9]), (rc.causal(WRAPS), [9, 9, 9]), (rc.causal(2**31 - 2), [9, 9, 9]),
    (rc.causal(-FAR), [0, 0, 0]), (rc.window(FAR, FAR), [9, 9, 9]), (rc.window(WRAPS, WRAPS), [9, 9, 9]),
    (rc.window(FAR, 0), [1, 6, 9]), (rc.window(0, FAR), [9, 4, 0]), (rc.keys(FAR, FAR), [0, 0, 0]),
    (rc.prefix(FAR), [9, 9, 9]), (rc.padding(2**62), [9, 9, 9]), (rc.documents([1, 2**62]), [1, 8, 8]),
], ids=lambda x: repr(x) if isinstance(x, Mask) else "")  # fmt: skip
@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_as_far_as_anybody_looks_does_not_wrap_around(mask: Mask, counts: list[int], dtype: str) -> None:
    last = np.iinfo(dtype).max - 2
    lowered = mask.lower(np, np.array([0, 5, last], dtype), 9)
    if mask == rc.documents([1, 2**62]) and dtype == "int64":
        counts = [1, 8, 0]  # the last query is behind the last document
    assert np.asarray(lowered.hi - lowered.lo).sum(axis=0).tolist() == counts
    assert lowered.lo.dtype == dtype


def test_a_mask_costs_nothing_however_long_the_sequence() -> None:
    S = 10**9
    tracemalloc.start()
    mask = (rc.causal() & rc.documents([S // 2, S - S // 2])) | rc.global_tokens([0, 1, 2, S - 1])
    lowered = mask.lower(np, np.array([0, 5, S // 2, S - 1]), S)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 100_000
    count = np.asarray(lowered.hi - lowered.lo).sum(axis=0)
    assert count.tolist() == [S, 7, 5, S]  # 0..5 and the last; 0..2, itself and the last


def test_masks_do_not_change_with_the_callers_arrays() -> None:
    lengths = np.array([2, 1])
    masks = [rc.documents(lengths), rc.padding(lengths), rc.global_tokens(lengths)]
    before = [(repr(m), table(m, 3, 3).tolist()) for m in masks]
    lengths[:] = 0
    assert [(repr(m), table(m, 3, 3).tolist()) for m in masks] == before


# ---------------------------------------------------------------------- tracing

TRACED = [
    rc.full(), rc.causal(-1), rc.window(2, None), rc.window(1, 3), rc.keys(1, 4), rc.prefix(2),
    rc.documents([2, 0, 3]), rc.documents([[2, 2], [4, 1]], [[1, 3], [0, 5]]), rc.padding([2, 4]),
    rc.global_tokens([1, 4, 5]), ~(rc.causal() & rc.window(1, 1)) | rc.documents([[1, 4], [3, 3]]),
]  # fmt: skip


def test_lower_traces_under_jit() -> None:
    jax = pytest.importorskip("jax", reason="jax is not installed")
    import jax.numpy as jnp

    q_pos = np.array([0, 2, 3, 5])
    got = jax.jit(lambda q: [mask.lower(jnp, q, 6) for mask in TRACED])(jnp.asarray(q_pos))
    for mask, lowered in zip(TRACED, got, strict=True):
        want = mask.lower(np, q_pos, 6)
        assert np.array_equal(lowered.lo, want.lo) and np.array_equal(lowered.hi, want.hi), mask


# ---------------------------------------------------------------------- identity


def all_different() -> list[Mask]:
    return [
        rc.full(), rc.causal(), rc.causal(1), rc.window(1, 0), rc.window(0, 1), rc.window(None, 0),
        rc.prefix(1), rc.keys(0, 1), rc.keys(1, 2),
        rc.documents([1, 2]), rc.documents([2, 1]), rc.documents([3]),
        rc.documents([[1, 2]]), rc.documents([1, 2], [2, 1]), rc.documents([[1, 2], [2, 1]]),
        rc.documents(np.arange(50)), rc.documents(np.arange(50)[::-1]), rc.padding(3), rc.padding([3]),
        rc.padding([3, 4]), rc.padding([[3, 4]]), rc.global_tokens([0]), rc.global_tokens([0, 1]),
        rc.global_tokens([0, 2]), rc.causal() & rc.prefix(1), rc.causal() | rc.prefix(1), ~rc.causal(),
        ~~rc.causal(), rc.prefix(1) & rc.causal(), (rc.causal() & rc.prefix(1)) & rc.padding(3),
        rc.causal() & (rc.prefix(1) & rc.padding(3)), rc.causal() & rc.dense(np.ones((1, 1), bool)),
    ]  # fmt: skip


def test_different_masks_have_different_digests_and_are_not_equal() -> None:
    masks = all_different()
    assert len({mask.digest() for mask in masks}) == len(masks)
    assert len(set(masks)) == len(masks)


def test_equal_masks_have_equal_digests_hashes_and_texts() -> None:
    for a, b in zip(all_different()[:-1], all_different()[:-1], strict=True):
        assert a is not b and a == b and hash(a) == hash(b)
        assert a.digest() == b.digest() and repr(a) == repr(b)


def test_dense_arrays_are_not_compared_between_ranks() -> None:
    """Each rank holds its own rows."""
    ones, zeros = (rc.dense(np.full((2, 3), value)) & rc.causal() for value in (True, False))
    assert ones.digest() == zeros.digest() and hash(ones) == hash(zeros)
    assert ones == ones and ones != zeros


def test_texts_are_what_one_would_type() -> None:
    mask = ~(rc.causal() & rc.window(3, None)) | (rc.documents([1, 2]) & rc.global_tokens([1, 2, 3, 7]))
    assert repr(mask) == "(~(causal() & window(3, None)) | (documents([1, 2]) & global_tokens([1..3, 7])))"
    assert repr(rc.causal(-2) | rc.keys(1, 2) | rc.prefix(3)) == "((causal(-2) | keys(1, 2)) | prefix(3))"
    assert repr(rc.documents([[1, 2], [3, 0]]) & rc.padding([4, 5])) == (
        "(documents([[1, 2], [3, 0]]) & padding([4, 5]))"
    )
    assert repr(rc.documents([1, 2], [2, 1])) == "documents([1, 2], [2, 1])"
    for mask in (rc.documents(np.full(100_000, 10**12)), rc.padding(np.full((50, 60), 10**12))):
        assert len(repr(mask)) < 800 and "\n" not in repr(mask)


def test_dense_arrays_are_collected_through_and() -> None:
    a, b = np.ones((2, 3), bool), np.zeros((4, 2, 3), bool)
    mask = (rc.causal() & rc.dense(a)) & (rc.dense(b) & rc.prefix(2))
    assert [x is y for x, y in zip(mask.arrays, (a, b), strict=True)] == [True, True]
    assert np.array_equal(table(mask, 2, 3), [[1, 0, 0], [1, 1, 0]]), "its intervals are those of the others"


# ---------------------------------------------------------------------- wrong arguments

ONES = np.ones((2, 2), bool)
WRONG = [
    (lambda: rc.causal(1.0), TypeError, "offset must be an integer. Got 1.0"),
    (lambda: rc.causal(True), TypeError, "offset must be an integer. Got True"),
    (lambda: rc.window(-1, 0), ValueError, "left must be >= 0 or None (unbounded). Got -1"),
    (lambda: rc.window(0, -2), ValueError, "right must be >= 0 or None (unbounded). Got -2"),
    (lambda: rc.window("a", 0), TypeError, "left must be an integer. Got 'a'"),
    (lambda: rc.keys(-1, 2), ValueError, "needs 0 <= start <= stop. Got start=-1, stop=2"),
    (lambda: rc.keys(3, 2), ValueError, "needs 0 <= start <= stop. Got start=3, stop=2"),
    (lambda: rc.keys(0, None), TypeError, "stop must be an integer. Got None"),
    (lambda: rc.prefix(-1), ValueError, "n must be >= 0. Got -1"),
    (lambda: rc.prefix(2.5), TypeError, "n must be an integer. Got 2.5"),
    (lambda: rc.documents([]), ValueError, "at least one document. Got none"),
    (lambda: rc.documents([1.5]), TypeError, "lengths must be integers. Got float64"),
    (lambda: rc.documents([1, -1]), ValueError, "lengths must be >= 0. Got -1"),
    (lambda: rc.documents([1], [1, 2]), ValueError, "the same shape, one pair for each document. Got (1,)"),
    (lambda: rc.documents([1], [-2]), ValueError, "k_lengths must be >= 0. Got -2"),
    (lambda: rc.padding([0.5]), TypeError, "lengths must be integers"),
    (lambda: rc.padding([-3]), ValueError, "lengths must be >= 0. Got -3"),
    (lambda: rc.global_tokens([]), ValueError, "at least one position. Got none"),
    (lambda: rc.global_tokens([-1]), ValueError, "positions must be >= 0. Got -1"),
    (lambda: rc.dense(np.ones((2, 2))), TypeError, "boolean array of shape (..., L_q, S_k). Got float64"),
    (lambda: rc.dense(np.ones(2, bool)), TypeError, "Got bool of shape (2,)"),
    (lambda: rc.dense([[True]]), TypeError, "Got list of shape None"),
    (lambda: rc.causal() & ONES, TypeError, "Got ndarray. Wrap a boolean array with ringcore.dense"),
    (lambda: rc.causal() | None, TypeError, "both sides of | must be masks. Got NoneType"),
    (lambda: rc.causal() | rc.dense(ONES), TypeError, "can only be joined by &. Got | on dense(...)"),
    (lambda: (rc.dense(ONES) & rc.full()) | rc.full(), TypeError, "can only be joined by &. Got |"),
    (lambda: ~(rc.full() & rc.dense(ONES)), TypeError, "only be joined by &. Got ~ on (full() & dense(...))"),
    (lambda: rc.padding([1, 2]) & rc.padding([1, 2, 3]), ValueError, "same batch. Got rows of shape (2,)"),
    (lambda: rc.padding([1, 2]) | rc.documents([[1]] * 3), ValueError, "of | must be for the same batch"),
    (lambda: Mask().lower(np, np.arange(1), 1), TypeError, "Mask does not define lower()"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "kind", "message"), WRONG, ids=[message for _, _, message in WRONG])
def test_wrong_arguments(call: Any, kind: type[Exception], message: str) -> None:
    with pytest.raises(kind) as caught:
        call()
    assert message in str(caught.value)
