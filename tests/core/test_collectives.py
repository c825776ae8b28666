"""Collectives against the definition: global arrays cut by the positions that a layout lists."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import ringcore as rc
from ringcore.collectives import allreduce, alltoall, gather, reshard, scatter
from ringcore.errors import PeerFailed, PeerTimeout
from ringcore.layout import Layout
from ringcore.protocols import Recv, Send
from tests.bare import BareTransport
from tests.libraries import Library

pytestmark = pytest.mark.timeout(120)

PADDING = 64  # bytes: a message may be longer than its array by less than this
SOON = 5.0
BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
DTYPES = [
    np.dtype(name)
    for name in [
        "bool",
        "int8",
        "uint8",
        "int16",
        "int32",
        "int64",
        "float16",
        "float32",
        "float64",
        "complex64",
    ]
]


def bits(seed: int, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """Random bit patterns, NaNs of all kinds among them."""
    dtype, rng = np.dtype(dtype), np.random.default_rng(seed)
    if dtype.kind == "b":
        return rng.integers(0, 2, shape).astype(bool)
    return rng.integers(0, 256, (*shape, dtype.itemsize), dtype=np.uint8).view(dtype)[..., 0]


def same_bits(a: np.ndarray, b: np.ndarray) -> bool:
    return (a.shape, a.dtype, a.tobytes()) == (b.shape, b.dtype, b.tobytes())


def cut(x: np.ndarray, layout: Layout, rank: int, axis: int) -> np.ndarray:
    """The oracle for a shard."""
    return np.take(x, layout.positions(rank), axis=axis)


@st.composite
def layouts(draw: st.DrawFn, length: int, ranks: int) -> Layout:
    kind = draw(st.sampled_from(("contiguous", "zigzag", "striped", "uneven")))
    if kind == "uneven":
        cuts = sorted(draw(st.lists(st.integers(0, length), min_size=ranks - 1, max_size=ranks - 1)))
        return Layout.from_lengths([b - a for a, b in zip([0, *cuts], [*cuts, length], strict=True)])
    if kind == "striped":
        return Layout.striped(length=length, ranks=ranks, block=draw(st.integers(1, 5)))
    return getattr(Layout, kind)(length=length, ranks=ranks)


@st.composite
def cases(draw: st.DrawFn) -> tuple[Layout, Layout, np.ndarray, int, int]:
    """Two layouts, an array, its sequence axis and a root."""
    ranks, length = draw(st.integers(1, 8)), draw(st.integers(0, 40))
    shape = draw(st.lists(st.integers(0, 3) if draw(st.booleans()) else st.integers(1, 3), max_size=3))
    axis = draw(st.integers(0, len(shape)))
    x = bits(draw(st.integers(0, 99)), (*shape[:axis], length, *shape[axis:]), draw(st.sampled_from(DTYPES)))
    if draw(st.booleans()):
        axis -= x.ndim
    return (
        draw(layouts(length, ranks)),
        draw(layouts(length, ranks)),
        x,
        axis,
        draw(st.integers(0, ranks - 1)),
    )


class Guarded(BareTransport):
    """A transport that looks at buffers: nothing outside a receive is written, no send is changed."""

    def exchange(self, sends: list[Send], recvs: list[Recv]) -> Any:
        rooms = [np.full(len(recv.buffer) + 1, 0xA5, np.uint8) for recv in recvs]
        before = [send.buffer.tobytes() for send in sends]
        inner = self.inner.exchange(
            sends, [Recv(room[:-1], recv.source, recv.tag) for room, recv in zip(rooms, recvs, strict=True)]
        )

        class Exchange:
            test = inner.test

            @staticmethod
            def wait(timeout: float) -> None:
                inner.wait(timeout)
                assert [send.buffer.tobytes() for send in sends] == before
                for room, recv in zip(rooms, recvs, strict=True):
                    assert room[-1] == 0xA5
                    recv.buffer[:] = room[:-1]

        return Exchange


def run(ranks: int, fn: Callable[..., Any]) -> list[Any]:
    return rc.run_ranks(ranks, lambda ring: fn(rc.Ring(Guarded(ring.transport), timeout=30.0)))


# ---------------------------------------------------------------------- scatter, gather, reshard


@given(case=cases())
def test_scatter_gives_each_rank_its_positions_and_gather_gives_them_back(case: tuple) -> None:
    layout, _, x, axis, root = case

    def fn(ring: rc.Ring) -> None:
        mine = scatter(x if ring.rank == root else None, ring, layout, root=root, axis=axis)
        assert same_bits(mine, cut(x, layout, ring.rank, axis))
        back = gather(mine, ring, layout, root=root, axis=axis)
        assert same_bits(back, x) if ring.rank == root else back is None

    run(layout.ranks, fn)


@given(case=cases())
def test_reshard_moves_what_must_move_and_no_more(case: tuple) -> None:
    old, new, x, axis, _ = case
    row = x.nbytes // max(x.shape[axis], 1)

    def fn(ring: rc.Ring) -> None:
        me = ring.rank
        got = reshard(cut(x, old, me, axis), ring, old, new, axis=axis)
        assert same_bits(got, cut(x, new, me, axis))
        for to in range(ring.size):
            moved = len(set(old.positions(me).tolist()) & set(new.positions(to).tolist()))
            sent = ring.traffic.by_peer.get(to, 0)
            if to == me or moved * row == 0:
                assert to not in ring.traffic.by_peer
            else:
                assert moved * row <= sent < moved * row + PADDING
        assert ring.traffic.messages == len(ring.traffic.by_peer) < max(ring.size, 1)

    run(old.ranks, fn)


def test_reshard_is_not_slowed_by_long_sequences() -> None:
    """Index work follows the shard, not the sequence: one rank holds 10 of 10^15 positions."""
    S = 10**15
    old, new = Layout.from_lengths([10, S - 10 - 7, 7]), Layout.from_lengths([3, S - 3 - 9, 9])

    def fn(ring: rc.Ring) -> list[int]:
        if ring.rank == 1:
            return []
        from ringcore.collectives import _by_owner

        return [(to, len(index)) for to, index in _by_owner(old.positions(ring.rank), new).items()]

    start = time.monotonic()
    assert rc.run_ranks(3, fn) == [[(0, 3), (1, 7)], [], [(2, 7)]]
    assert time.monotonic() - start < SOON


@pytest.mark.parametrize("dtype", ["bool", "int64", "float16", "float32", "complex64", "bfloat16"])
def test_every_library_and_dtype_keeps_its_bits(xp: Library, dtype: str) -> None:
    if xp.name == "array-api-strict":  # the standard has no 16-bit floats
        dtype = {"float16": "int16", "bfloat16": "uint16"}.get(dtype, dtype)
    layout, other = Layout.zigzag(length=7, ranks=3), Layout.striped(length=7, ranks=3)
    x = bits(3, (2, 7, 3), BFLOAT16 if dtype == "bfloat16" else dtype)
    root = 1

    def fn(ring: rc.Ring) -> None:
        kind = type(xp.asarray(x))
        mine = scatter(xp.asarray(x) if ring.rank == root else None, ring, layout, root=root)
        moved = reshard(mine, ring, layout, other)
        back = gather(moved, ring, other, root=root)
        swapped = alltoall([mine for _ in range(ring.size)], ring)
        whole = layout.unshard(swapped)
        for got in (mine, moved, *([back] if ring.rank == root else []), *swapped):
            assert type(got) is kind
        assert same_bits(xp.numpy(mine), cut(x, layout, ring.rank, -2))
        assert same_bits(xp.numpy(moved), cut(x, other, ring.rank, -2))
        assert same_bits(xp.numpy(whole), x)
        assert back is None or same_bits(xp.numpy(back), x)

    run(3, fn)


@pytest.mark.parametrize("dtype", ["uint16", "uint32", "uint64"])
def test_unsigned_integers(dtype: str) -> None:
    old, new = Layout.contiguous(length=9, ranks=2), Layout.zigzag(length=9, ranks=2)
    x = bits(1, (9,), dtype)
    moved = run(2, lambda ring: reshard(cut(x, old, ring.rank, 0), ring, old, new, axis=0))
    for rank, part in enumerate(moved):
        assert part.dtype == x.dtype and np.array_equal(part, x[new.positions(rank)])


@pytest.mark.parametrize("ranks", [1, 3])
def test_views_of_any_strides_are_fine_and_results_share_no_memory(ranks: int) -> None:
    old, new = Layout.striped(length=8, ranks=ranks), Layout.contiguous(length=8, ranks=ranks)
    base = bits(5, (6, 8, 4), "float32")
    views = [base[::2], base[:, :, ::-1], base[1:, :, 1:], np.asfortranarray(base), base.transpose(2, 1, 0)]

    def fn(ring: rc.Ring) -> None:
        for x in views:
            before = x.copy()
            mine = old.shard(x, ring.rank)
            results = [
                scatter(x, ring, old),
                gather(mine, ring, old),
                gather(new.shard(x, ring.rank), ring, new),
                reshard(mine, ring, old, old),
                reshard(mine, ring, old, new),
                allreduce(x, ring),
                *alltoall([mine] * ring.size, ring),
            ]
            assert same_bits(results[0], cut(x, old, ring.rank, -2))
            assert ring.rank or same_bits(results[1], x.copy())
            assert ring.rank or same_bits(results[2], x.copy())
            assert not any(np.shares_memory(got, base) for got in results if got is not None)
            assert all(got.flags.writeable for got in results if got is not None)
            assert same_bits(x.copy(), before)

    run(ranks, fn)


def test_what_other_ranks_pass_to_scatter_is_ignored() -> None:
    layout = Layout.contiguous(length=4, ranks=3)
    got = run(
        3, lambda ring: scatter(np.arange(4) if ring.rank == 2 else "nonsense", ring, layout, 2, axis=0)
    )
    assert [x.tolist() for x in got] == [[0, 1], [2], [3]]


def test_scatter_and_gather_count_their_bytes() -> None:
    layout, x = Layout.contiguous(length=64, ranks=4), np.zeros((64, 4), np.float32)

    def fn(ring: rc.Ring) -> tuple[int, int]:
        mine = ring.scatter(x if ring.rank == 0 else None, layout)
        before = ring.traffic.bytes
        ring.gather(mine, layout)
        return before, ring.traffic.bytes - before

    assert rc.run_ranks(4, fn) == [(768, 0), (0, 256), (0, 256), (0, 256)]


# ---------------------------------------------------------------------- allreduce


@given(
    ranks=st.integers(1, 8),
    shape=st.lists(st.integers(0, 5), max_size=3),
    dtype=st.sampled_from(
        ["int8", "int64", "uint32", "float16", "float32", "float64", "complex64", "bfloat16"]
    ),
    seed=st.integers(0, 99),
)
def test_allreduce_sums_in_rank_order_and_rounds_once(
    ranks: int, shape: list[int], dtype: str, seed: int
) -> None:
    dtype = BFLOAT16 if dtype == "bfloat16" else np.dtype(dtype)
    rng = np.random.default_rng(seed)
    scale = 10.0 ** rng.integers(-3, 4, (ranks, *shape))
    inputs = list((rng.standard_normal((ranks, *shape)) * scale).astype("f4").astype(dtype))
    inputs = [np.asarray(x) for x in inputs]
    wide = np.dtype("float32") if dtype.itemsize == 2 and dtype.kind not in "iu" else dtype
    want = inputs[0].astype(wide)
    with np.errstate(over="ignore"):
        for x in inputs[1:]:
            want = np.asarray(want + x.astype(wide))
        want = want.astype(dtype)
    nbytes = want.nbytes

    def fn(ring: rc.Ring) -> None:
        with np.errstate(over="ignore"):
            got = allreduce(inputs[ring.rank], ring)
        assert same_bits(np.asarray(got), want)
        most = 2 * (nbytes - nbytes // ranks) + 2 * dtype.itemsize * ranks
        assert ring.traffic.bytes <= most + 2 * (ranks - 1) * PADDING

    run(ranks, fn)


@pytest.mark.parametrize("ranks", range(1, 9))
def test_allreduce_sends_twice_the_size_not_p_times(ranks: int) -> None:
    x = np.ones((1000, 64), np.float32)

    def fn(ring: rc.Ring) -> int:
        assert (allreduce(x, ring) == ranks).all()
        return ring.traffic.bytes

    want = 2 * x.nbytes * (ranks - 1) / ranks
    assert all(want * 0.999 <= sent <= want * 1.001 + 2 * ranks * PADDING for sent in run(ranks, fn))


def test_allreduce_over_every_library(xp: Library) -> None:
    inputs = np.random.default_rng(0).standard_normal((3, 4, 5)).astype("f4")
    want = inputs[0] + inputs[1] + inputs[2]
    zero_d = np.asarray(2, "i4")

    def fn(ring: rc.Ring) -> None:
        got = allreduce(xp.asarray(inputs[ring.rank]), ring)
        assert type(got) is type(xp.asarray(want))
        assert same_bits(xp.numpy(got), want)
        assert same_bits(xp.numpy(allreduce(xp.asarray(zero_d), ring)), np.asarray(6, "i4"))
        if xp.name != "array-api-strict":
            third = xp.asarray(np.full(7, 1 / 3).astype(BFLOAT16))
            assert xp.numpy(allreduce(third, ring)).tobytes() == np.full(7, 1.0).astype(BFLOAT16).tobytes()

    run(3, fn)


def test_sixteen_bit_sums_are_kept_in_float32() -> None:
    """Seven times 1 is lost, one by one, beside 256 in bfloat16, which has 8 bits."""
    got = run(8, lambda ring: allreduce(np.asarray([1.0 if ring.rank else 256.0], BFLOAT16), ring))
    assert [float(x[0]) for x in got] == [264.0] * 8


# ---------------------------------------------------------------------- alltoall


@given(ranks=st.integers(1, 6), seed=st.integers(0, 999))
def test_alltoall_of_any_shapes_and_dtypes(ranks: int, seed: int) -> None:
    rng = np.random.default_rng(seed)

    def some(number: int) -> np.ndarray:
        return bits(number, tuple(rng.integers(0, 4, rng.integers(0, 4))), DTYPES[rng.integers(len(DTYPES))])

    table = [[some(seed + ranks * a + b) for b in range(ranks)] for a in range(ranks)]

    def fn(ring: rc.Ring) -> None:
        for source, got in enumerate(alltoall(table[ring.rank], ring)):
            assert same_bits(np.asarray(got), np.asarray(table[source][ring.rank]))
        sent = sum(np.asarray(x).nbytes for to, x in enumerate(table[ring.rank]) if to != ring.rank)
        assert sent <= ring.traffic.bytes <= sent + PADDING * (ranks - 1)

    run(ranks, fn)


# ---------------------------------------------------------------------- wrong calls, failures

ZIGZAG = Layout.zigzag(length=6, ranks=3)
SHORTER = Layout.zigzag(length=5, ranks=3)
TWO = Layout.zigzag(length=6, ranks=2)
X = np.zeros((6, 4))
PART = np.zeros((2, 4))
SWAPPED = np.dtype("f8").newbyteorder()


def on(rank: int, value: Any, other: Any) -> Callable[[rc.Ring], Any]:
    return lambda ring: value if ring.rank == rank else other


WRONG: list[tuple[str, Callable[[rc.Ring], Any], type[Exception], str]] = [
    (
        "scatter nothing",
        lambda r: scatter(None, r, ZIGZAG),
        ValueError,
        "x must be an array on root. Got None on rank 0",
    ),
    (
        "scatter from another rank",
        lambda r: scatter(on(0, X, None)(r), r, ZIGZAG, root=2),
        ValueError,
        "Got None on rank 2",
    ),
    ("scatter a list", lambda r: scatter([1], r, ZIGZAG), TypeError, "x must be an array. Got list"),
    (
        "scatter strings",
        lambda r: scatter(np.array(["a"] * 6), r, ZIGZAG, axis=0),
        TypeError,
        "dtype must be one that",
    ),
    ("scatter byte-swapped", lambda r: scatter(X.astype(SWAPPED), r, ZIGZAG), TypeError, "plain dtype"),
    (
        "scatter too short",
        lambda r: scatter(X[1:], r, ZIGZAG),
        ValueError,
        r"must have 6 positions on axis 0.*Got shape \(5, 4\)",
    ),
    ("scatter 1-d", lambda r: scatter(X[:, 0], r, ZIGZAG), ValueError, "Pass axis=0"),
    (
        "scatter axis",
        lambda r: scatter(X, r, ZIGZAG, axis=2),
        ValueError,
        "axis must be one of the 2 axes of x. Got axis=2",
    ),
    ("scatter axis type", lambda r: scatter(X, r, ZIGZAG, axis=None), TypeError, "NoneType"),
    (
        "scatter ranks",
        lambda r: scatter(X, r, TWO),
        ValueError,
        "layout must be for the ranks of the ring, 3",
    ),
    (
        "scatter layout",
        lambda r: scatter(X, r, [2, 2, 2]),
        TypeError,
        "layout must be a ringcore.Layout. Got list",
    ),
    (
        "scatter root",
        lambda r: scatter(X, r, ZIGZAG, root=3),
        ValueError,
        r"root must be a rank, in \[0, 3\). Got 3",
    ),
    (
        "scatter roots",
        lambda r: scatter(X, r, ZIGZAG, root=r.rank // 2),
        ValueError,
        "same root. Rank 0 passed 0, rank 2 1",
    ),
    ("scatter axes", lambda r: scatter(X, r, ZIGZAG, axis=on(1, 0, -2)(r)), ValueError, "same axis"),
    (
        "scatter layouts",
        lambda r: scatter(X, r, on(1, Layout.striped(length=6, ranks=3), ZIGZAG)(r)),
        ValueError,
        "same layout",
    ),
    (
        "gather count",
        lambda r: gather(on(1, X, PART)(r), r, ZIGZAG),
        ValueError,
        r"must have 2 positions.*\(6, 4\).*on rank 1 of 3",
    ),
    ("gather none", lambda r: gather(on(2, None, PART)(r), r, ZIGZAG), TypeError, "Got NoneType.*on rank 2"),
    ("gather shapes", lambda r: gather(on(1, PART[:, 1:], PART)(r), r, ZIGZAG), ValueError, "same shape"),
    (
        "gather ndim",
        lambda r: gather(on(1, PART[None], PART)(r), r, ZIGZAG),
        ValueError,
        "same sequence axis",
    ),
    (
        "gather dtypes",
        lambda r: gather(PART.astype(on(1, "f4", "f8")(r)), r, ZIGZAG),
        ValueError,
        "same dtype.*float64.*float32",
    ),
    ("gather roots", lambda r: gather(PART, r, ZIGZAG, root=r.rank), ValueError, "same root"),
    ("gather root", lambda r: gather(PART, r, ZIGZAG, root=-1), ValueError, "root must be a rank"),
    ("gather ranks", lambda r: gather(PART, r, TWO), ValueError, "layout must be for the ranks"),
    (
        "gather layouts",
        lambda r: gather(PART, r, on(1, Layout.contiguous(length=6, ranks=3), ZIGZAG)(r)),
        ValueError,
        "same layout",
    ),
    (
        "reshard lengths",
        lambda r: reshard(PART, r, ZIGZAG, SHORTER),
        ValueError,
        "old and new must be of the same length",
    ),
    ("reshard old ranks", lambda r: reshard(PART, r, TWO, ZIGZAG), ValueError, "old must be for the ranks"),
    ("reshard new ranks", lambda r: reshard(PART, r, ZIGZAG, TWO), ValueError, "new must be for the ranks"),
    (
        "reshard new type",
        lambda r: reshard(PART, r, ZIGZAG, None),
        TypeError,
        "new must be a ringcore.Layout",
    ),
    ("reshard count", lambda r: reshard(on(0, X, PART)(r), r, ZIGZAG, ZIGZAG), ValueError, "on rank 0 of 3"),
    (
        "reshard news",
        lambda r: reshard(PART, r, ZIGZAG, on(2, ZIGZAG, Layout.striped(length=6, ranks=3))(r)),
        ValueError,
        "same new layout",
    ),
    (
        "reshard dtypes",
        lambda r: reshard(PART.astype(on(1, "f4", "f8")(r)), r, ZIGZAG, ZIGZAG),
        ValueError,
        "same dtype",
    ),
    (
        "allreduce shapes",
        lambda r: allreduce(np.zeros(r.rank // 2), r),
        ValueError,
        r"same shape. Rank 0 passed \(0,\), rank 2 \(1,\)",
    ),
    ("allreduce dtypes", lambda r: allreduce(np.zeros(1, on(1, "f4", "f8")(r)), r), ValueError, "same dtype"),
    ("allreduce bool", lambda r: allreduce(np.zeros(1, bool), r), TypeError, "hold numbers.*Got dtype bool"),
    ("allreduce number", lambda r: allreduce(1.0, r), TypeError, "x must be an array. Got float"),
    (
        "alltoall count",
        lambda r: alltoall([X] * on(1, 2, 3)(r), r),
        ValueError,
        "one array for each of 3 ranks. Got 2.*on rank 1",
    ),
    ("alltoall array", lambda r: alltoall(X, r), ValueError, "Got ndarray"),
    (
        "alltoall member",
        lambda r: alltoall([X, on(2, 1, X)(r), X], r),
        TypeError,
        r"arrays\[1\] must be an array. Got int",
    ),
]


@pytest.mark.parametrize(("call", "kind", "text"), [row[1:] for row in WRONG], ids=[row[0] for row in WRONG])
def test_wrong_arguments_are_the_same_error_everywhere_before_data_moves(
    call: Callable[[rc.Ring], Any], kind: type[Exception], text: str
) -> None:
    def fn(ring: rc.Ring) -> tuple[type, str]:
        with pytest.raises(kind, match=text) as info:
            call(ring)
        assert ring.traffic.messages == 0
        assert (allreduce(np.ones(1), ring) == 3).all()  # the ring is fit for the next call
        return type(info.value), str(info.value)

    assert len(set(rc.run_ranks(3, fn))) == 1


def test_libraries_that_differ_in_one_alltoall() -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    with pytest.raises(ValueError, match="same array library"):
        rc.run_ranks(2, lambda ring: alltoall([torch.ones(1) if ring.rank else np.ones(1)] * 2, ring))


CALLS = {
    "scatter": lambda ring: scatter(X, ring, ZIGZAG),
    "gather": lambda ring: gather(PART, ring, ZIGZAG),
    "reshard": lambda ring: reshard(PART, ring, ZIGZAG, Layout.contiguous(length=6, ranks=3)),
    "allreduce": lambda ring: allreduce(X, ring),
    "alltoall": lambda ring: alltoall([X] * 3, ring),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS.keys())
@pytest.mark.parametrize("victim", range(3))
def test_a_rank_that_fails_before_or_midway_ends_all(call: Callable[[rc.Ring], Any], victim: int) -> None:
    def midway(*_: Any) -> None:
        raise ZeroDivisionError

    def fails(ring: rc.Ring) -> None:
        if ring.rank == victim:
            raise ZeroDivisionError
        call(ring)

    def breaks(ring: rc.Ring) -> None:
        if ring.rank == victim:
            ring.transport.exchange = midway
        call(ring)

    start = time.monotonic()
    for fn in (fails, breaks):
        with pytest.raises(ZeroDivisionError) as info:
            rc.run_ranks(3, fn)
        assert info.value.__notes__ == [f"on rank {victim} of 3"]
    assert time.monotonic() - start < SOON


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS.keys())
def test_a_rank_that_does_not_call_is_named(call: Callable[[rc.Ring], Any]) -> None:
    with pytest.raises(PeerFailed, match=r"(?i)rank 1 of 3 has returned"):
        rc.run_ranks(3, lambda ring: call(ring) if ring.rank != 1 else None)


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS.keys())
def test_a_silent_rank_is_a_timeout_that_names_it(call: Callable[[rc.Ring], Any]) -> None:
    def fn(ring: rc.Ring) -> None:
        if ring.rank == 1:
            time.sleep(0.5)
        else:
            with pytest.raises(PeerTimeout, match="rank 1 of 3") as info:
                call(ring)
            assert info.value.peer == 1

    rc.run_ranks(3, fn, timeout=0.1)


@pytest.mark.parametrize("ranks", [4, 6])
def test_collectives_of_split_rings(ranks: int) -> None:
    def fn(ring: rc.Ring) -> None:
        part = ring.split(ring.rank % 2, ring.rank)
        layout = Layout.striped(length=5, ranks=part.size)
        mine = part.scatter(np.arange(5) + ring.rank % 2 if part.rank == 0 else None, layout, axis=0)
        assert (mine == layout.positions(part.rank) + ring.rank % 2).all()
        assert (part.allreduce(np.asarray([ring.rank])) == sum(range(ring.rank % 2, ranks, 2))).all()

    rc.run_ranks(ranks, fn)
