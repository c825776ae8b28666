"""Layouts against brute force: who holds what, counted position by position."""

from __future__ import annotations

import pickle
import tracemalloc
from collections import Counter
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringcore.layout import Layout


def holders(layout: Layout) -> list[int]:
    """The rank of each position, from the words of the definition and nothing else."""
    S, P = layout.length, layout.ranks
    if layout.kind == "striped":
        return [(p // layout.block) % P for p in range(S)]
    if layout.kind == "uneven":
        return [rank for rank, n in enumerate(layout.lengths) for _ in range(n)]
    chunks = P if layout.kind == "contiguous" else 2 * P
    found = []
    longer = range(S % chunks) if layout.kind == "contiguous" else range(chunks - S % chunks, chunks)
    for chunk in range(chunks):
        found += [chunk if chunk < P else 2 * P - 1 - chunk] * (S // chunks + (chunk in longer))
    return found


def layouts_of(S: int, P: int) -> list[Layout]:
    left = [S // 3 if rank == 0 else 0 for rank in range(P)]
    left[P // 2] += S - sum(left)
    return [
        Layout.contiguous(length=S, ranks=P),
        Layout.zigzag(length=S, ranks=P),
        *(Layout.striped(length=S, ranks=P, block=block) for block in (1, 2, 3, 7, 10**12)),
        Layout.from_lengths(left),
    ]


SOME = [layout for S, P in [(0, 3), (1, 4), (7, 2), (26, 2), (23, 5), (3, 8)] for layout in layouts_of(S, P)]
FEW = [layouts_of(23, 5)[i] for i in (0, 1, 2, 4, 7)] + [layouts_of(3, 8)[i] for i in (1, 3, 7)]


def layouts_for(xp) -> list[Layout]:
    """JAX compiles once per shape and is given fewer of them."""
    return FEW if xp.name == "jax" else SOME


@st.composite
def layouts(draw, max_length: int = 200, max_ranks: int = 11) -> Layout:
    ranks = draw(st.integers(1, max_ranks))
    if draw(st.booleans()):
        return Layout.from_lengths(
            draw(st.lists(st.integers(0, max_length // ranks), min_size=ranks, max_size=ranks))
        )
    length = draw(st.integers(0, max_length))
    kind = draw(st.sampled_from(["contiguous", "zigzag", "striped"]))
    block = draw(st.integers(1, 9)) if kind == "striped" else 1
    return Layout(kind, length, ranks, block)


# ---------------------------------------------------------------------- positions


@pytest.mark.parametrize("S", range(42))
def test_every_query_agrees_with_brute_force_for_all_small_layouts(S):
    seen = Counter()
    for P in range(1, 9):
        for layout in layouts_of(S, P):
            owner = np.array(holders(layout), dtype=np.int64)
            held = [np.flatnonzero(owner == rank) for rank in range(P)]
            x = np.arange(-3, S + 4)
            below = layout.below(np.arange(P)[:, None], x[None, :])
            assert below.shape == (P, S + 7) and below.dtype == np.int64
            assert np.array_equal(layout.owner(np.arange(S)), owner), layout
            for rank, positions in enumerate(held):
                count = len(positions)
                assert layout.count(rank) == count, layout
                assert layout.positions(rank).dtype == np.int64
                assert np.array_equal(layout.positions(rank), positions), layout
                assert [p for r in layout.ranges(rank) for p in r] == positions.tolist(), layout
                assert all(len(r) > 0 for r in layout.ranges(rank)), layout
                assert np.array_equal(below[rank], np.searchsorted(positions, x)), layout
                assert np.array_equal(layout.below(rank, x), below[rank])
                ahead = layout.global_positions(rank, np.arange(count + 3))
                assert np.array_equal(ahead, [*positions, S, S, S]), layout
                seen["empty rank"] += count == 0
            seen["P > S"] += P > S
    if S < 8:
        assert seen["empty rank"] and seen["P > S"]


@given(layouts(max_length=5000, max_ranks=40))
def test_positions_partition_the_sequence_in_order(layout):
    held = [layout.positions(rank) for rank in range(layout.ranks)]
    assert all(np.all(np.diff(positions) > 0) for positions in held)
    assert np.array_equal(np.sort(np.concatenate(held)), np.arange(layout.length))
    for rank, positions in enumerate(held):
        assert np.all(layout.owner(positions) == rank)
        assert np.array_equal(layout.below(rank, positions), np.arange(len(positions)))


def test_contiguous_ranks_differ_by_at_most_one_with_the_longer_ones_first():
    assert [Layout.contiguous(length=11, ranks=4).count(rank) for rank in range(4)] == [3, 3, 3, 2]


def test_zigzag_longer_chunks_come_last():
    layout = Layout.zigzag(length=26, ranks=2)
    assert layout.ranges(0) == (range(6), range(19, 26))
    assert layout.ranges(1) == (range(6, 19),)


@pytest.mark.parametrize("P", range(1, 33))
def test_zigzag_balances_causal_work_within_1_plus_2P_over_S(P):
    for S in range(2 * P, 200):
        layout = Layout.zigzag(length=S, ranks=P)
        work = [int((layout.positions(rank) + 1).sum()) for rank in range(P)]
        assert sum(work) == S * (S + 1) // 2
        assert max(work) * P / sum(work) <= 1 + 2 * P / S, (S, work)


def test_contiguous_does_not_balance_causal_work():
    """The bound above can fail: another layout breaks it."""
    layout = Layout.contiguous(length=64, ranks=4)
    work = [int((layout.positions(rank) + 1).sum()) for rank in range(4)]
    assert max(work) * 4 / sum(work) > 1 + 8 / 64


@pytest.mark.parametrize(
    "layout",
    [
        Layout.contiguous(length=10**12 + 7, ranks=1009),
        Layout.zigzag(length=10**12 + 7, ranks=1009),
        Layout.striped(length=10**12 + 7, ranks=1009, block=4096),
        Layout.from_lengths([10**12, 0, 7]),
    ],
    ids=repr,
)
def test_long_sequences_cost_nothing(layout):
    x = np.random.default_rng(0).integers(0, layout.length, 200)
    rank = layout.owner(x)
    assert np.array_equal(layout.global_positions(rank, layout.below(rank, x)), x)
    assert np.array_equal(
        layout.below(np.arange(layout.ranks), layout.length),
        [layout.count(rank) for rank in range(layout.ranks)],
    )


# ---------------------------------------------------------------------- array libraries


def test_queries_under_every_namespace_with_scalar_and_array_ranks(xp):
    for layout in layouts_for(xp)[:: 3 if xp.name == "jax" else 1]:  # eager JAX is slow
        x = np.arange(-2, layout.length + 3)
        index = np.arange(layout.length + 2)
        ranks = np.arange(layout.ranks)[:, None]
        for rank in (0, layout.ranks - 1, ranks):
            there = xp.asarray(rank) if isinstance(rank, np.ndarray) else rank
            below = layout.below(there, xp.asarray(x), xp.xp)
            found = layout.global_positions(there, xp.asarray(index), xp.xp)
            assert type(below) is type(found) is type(xp.asarray(x))
            assert np.array_equal(xp.numpy(below), layout.below(rank, x)), layout
            assert np.array_equal(xp.numpy(found), layout.global_positions(rank, index)), layout
        everywhere = np.arange(layout.length)
        owner = layout.owner(xp.asarray(everywhere), xp.xp)
        assert np.array_equal(xp.numpy(owner), layout.owner(everywhere)), layout


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "int32"])
def test_any_integer_dtype_goes_in_and_the_default_one_comes_out(xp, dtype):
    layout = Layout.zigzag(length=300, ranks=3)  # longer than int8 can hold
    x = xp.asarray(np.array([0, 5, 127], dtype))
    below, found = layout.below(2, x, xp.xp), layout.global_positions(2, x, xp.xp)
    assert xp.numpy(below).tolist() == [0, 0, 27]
    assert xp.numpy(found).tolist() == [100, 105, 300]
    assert below.dtype == found.dtype == xp.xp.asarray(0).dtype


def test_rank_and_positions_may_be_traced():
    jax = pytest.importorskip("jax", reason="jax is not installed")
    for layout in FEW:
        x, index = np.arange(-2, layout.length + 3), np.arange(layout.length + 2)
        below = jax.jit(lambda rank, x, layout=layout: layout.below(rank, x, jax.numpy))
        found = jax.jit(lambda rank, i, layout=layout: layout.global_positions(rank, i, jax.numpy))
        owner = jax.jit(lambda p, layout=layout: layout.owner(p, jax.numpy))
        for rank in range(layout.ranks):
            assert np.array_equal(below(rank, x), layout.below(rank, x))
            assert np.array_equal(found(rank, index), layout.global_positions(rank, index))
        assert np.array_equal(owner(np.arange(layout.length)), holders(layout))


def test_positions_beyond_the_default_integer_dtype_are_an_error():
    narrow = SimpleNamespace(asarray=lambda x: np.asarray(x, np.int32), iinfo=np.iinfo)  # JAX without x64
    with pytest.raises(ValueError, match=r"must fit .* Got int32\. Use a wider one .*jax_enable_x64"):
        Layout.contiguous(length=2**31, ranks=2).below(0, [1, 2], narrow)


# ---------------------------------------------------------------------- arrays


@pytest.mark.parametrize("axis", [0, -2, 2])
@pytest.mark.parametrize("dtype", ["bool", "int32", "complex64"])
def test_6_unshard_inverts_shard_on_every_library_axis_and_dtype(xp, dtype, axis):
    for layout in layouts_for(xp):
        shape = [2, 3, 2]
        shape[axis] = layout.length
        x = np.arange(np.prod(shape)).reshape(shape) * 7 % 5
        there = xp.asarray(x.astype(dtype))
        shards = [layout.shard(there, rank, axis=axis) for rank in range(layout.ranks)]
        for rank, shard in enumerate(shards):
            want = np.take(x, np.flatnonzero(np.array(holders(layout)) == rank), axis=axis).astype(dtype)
            assert np.array_equal(xp.numpy(shard), want), layout
        back = layout.unshard(shards, axis=axis)
        assert back.dtype == there.dtype and type(back) is type(there)
        assert np.array_equal(xp.numpy(back), x.astype(dtype)), layout


@pytest.mark.parametrize("dtype", ["bfloat16", "uint16", "float16"])
def test_6_round_trip_of_torch_dtypes_that_index_kernels_do_not_know(dtype):
    torch = pytest.importorskip("torch", reason="torch is not installed")
    for layout in SOME:
        x = torch.arange(layout.length * 3, dtype=torch.int64).reshape(-1, 3).to(getattr(torch, dtype))
        shards = [layout.shard(x, rank) for rank in range(layout.ranks)]
        assert torch.equal(layout.unshard(shards).to(torch.float64), x.to(torch.float64))


@pytest.mark.parametrize(
    "dtype", ["S1", "U5", "O", "datetime64[s]", "u1", "i8,f4", ">f8", "float16", "longdouble"]
)
def test_6_round_trip_of_numpy_dtypes_outside_the_array_api(dtype):
    for layout in SOME:
        x = np.arange(layout.length).astype("i8" if dtype == "datetime64[s]" else dtype).astype(dtype)
        shards = [layout.shard(x, rank, axis=0) for rank in range(layout.ranks)]
        assert all(shard.dtype == x.dtype for shard in shards)
        back = layout.unshard(shards, axis=0)
        assert back.dtype == x.dtype
        assert np.array_equal(back, x)


@given(layouts(), st.integers(0, 3), st.sampled_from(["u1", "f8", "U2"]))
def test_6_round_trip_on_random_layouts(layout, axis, dtype):
    shape = [2, 1, 3, 2]
    shape[axis] = layout.length
    x = (np.arange(np.prod(shape)).reshape(shape) % 97).astype(dtype)
    x.flags.writeable = False
    shards = [layout.shard(x, rank, axis=axis) for rank in range(layout.ranks)]
    assert np.array_equal(layout.unshard(shards, axis=axis - 4), x)


def test_strided_and_reversed_arrays_shard_like_their_copies():
    base = np.arange(2 * 46 * 3).reshape(2, 46, 3)
    for x in (base[:, ::2], base[:, ::-2], base.transpose(2, 1, 0)[:, 1::2]):
        for layout in layouts_of(23, 5):
            shards = [layout.shard(x, rank) for rank in range(5)]
            for rank, shard in enumerate(shards):
                assert np.array_equal(shard, x[:, layout.positions(rank)])


def test_19_every_token_arrives_when_ranks_do_not_divide_the_length():
    x = np.array([1, 1, 1, 1, 2, 2, 2])
    for layout in layouts_of(7, 2):
        assert sum(layout.shard(x, rank, axis=0).sum() for rank in range(2)) == 10


def test_25_positions_shard_like_any_array():
    for layout in SOME:
        for rank in range(layout.ranks):
            ids = layout.shard(np.arange(layout.length), rank, axis=0)
            assert np.array_equal(ids, layout.positions(rank))


@pytest.mark.parametrize(
    "layout",
    [
        Layout.contiguous(length=23, ranks=4),
        Layout.striped(length=23, ranks=4),
        Layout.from_lengths([20, 0, 2, 1]),
        Layout.zigzag(length=23, ranks=1),
    ],
    ids=repr,
)
def test_one_slice_is_a_view(layout):
    x = np.zeros((2, 23, 3))
    for rank in range(layout.ranks):
        shard = layout.shard(x, rank)
        assert shard.size == 0 or np.shares_memory(shard, x)


@pytest.mark.parametrize("layout", layouts_of(2**20, 8), ids=repr)
def test_sharding_copies_no_more_than_the_shard(layout):
    x = np.zeros((2**20, 2))
    largest = max(layout.count(rank) for rank in range(8)) * 16
    if largest == x.nbytes:
        pytest.fail("choose a case in which no rank holds everything") if layout.block == 1 else None
    for rank in range(8):
        tracemalloc.start()
        layout.shard(x, rank)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak <= 2.1 * largest


def test_memory_maps_are_read_only_where_needed(tmp_path):
    path = tmp_path / "x.bin"
    np.arange(46, dtype=np.float32).tofile(path)
    x = np.memmap(path, np.float32, mode="r", shape=(23, 2))
    for layout in layouts_of(23, 5):
        shards = [layout.shard(x, rank) for rank in range(5)]
        assert np.array_equal(layout.unshard(shards), np.arange(46).reshape(23, 2))


# ---------------------------------------------------------------------- as a value


def test_layouts_are_values():
    for layout in SOME:
        twin = eval(repr(layout))  # the repr is the expression that makes it
        assert twin == layout and hash(twin) == hash(layout) and twin is not layout
        assert pickle.loads(pickle.dumps(layout)) == layout
        with pytest.raises(AttributeError):
            layout.length = 3
    assert Layout.striped(length=8, ranks=2) != Layout.striped(length=8, ranks=2, block=2)


def test_even_lengths_are_the_contiguous_layout():
    assert Layout.from_lengths([3, 3, 2]) == Layout.contiguous(length=8, ranks=3)
    assert Layout.from_lengths(np.array([3, 2, 3])) == Layout.from_lengths([3, 2, 3])
    assert Layout.from_lengths([3, 2, 3]).lengths == (3, 2, 3)


def test_numpy_integers_are_integers():
    layout = Layout.striped(length=np.int32(9), ranks=np.uint8(2), block=np.int64(2))
    assert layout == Layout.striped(length=9, ranks=2, block=2)
    assert type(layout.length) is int and layout.count(np.int16(1)) == 4


def test_describe_shows_who_holds_what_in_few_lines():
    assert Layout.striped(length=9, ranks=2, block=2).describe() == (
        "Layout.striped(length=9, ranks=2, block=2)\n"
        "rank 0 holds 5: [0, 2) [4, 6) [8, 9)\n"
        "rank 1 holds 4: [2, 4) [6, 8)"
    )
    assert "rank 1 holds 50: 1 3 5 ..." in Layout.striped(length=100, ranks=2).describe()
    assert "rank 1 holds 0: nothing" in Layout.from_lengths([2, 0]).describe()
    text = Layout.zigzag(length=10**9, ranks=4096).describe()
    assert len(text.splitlines()) == 11 and "... 4087 more ranks ..." in text
    assert text.splitlines()[-1].startswith("rank 4095 holds 244140: [")


# ---------------------------------------------------------------------- wrong arguments

Z = Layout.zigzag(length=10, ranks=2)
X = np.zeros((10, 3))

WRONG = [
    (lambda: Layout.contiguous(length=-1, ranks=2), ValueError, "length must be at least 0. Got -1."),
    (lambda: Layout.contiguous(length=4, ranks=0), ValueError, "ranks must be at least 1. Got 0."),
    (lambda: Layout.striped(length=4, ranks=1, block=0), ValueError, "block must be at least 1. Got 0."),
    (lambda: Layout.zigzag(length=4.0, ranks=1), TypeError, "length must be an integer. Got 4.0."),
    (lambda: Layout.zigzag(length=True, ranks=1), TypeError, "length must be an integer. Got True."),
    (lambda: Layout.zigzag(length=4, ranks=np.True_), TypeError, "ranks must be an integer. Got"),
    (lambda: Layout.zigzag(length="4", ranks=1), TypeError, "length must be an integer. Got '4'."),
    (lambda: Layout.from_lengths([]), ValueError, "ranks must be at least 1. Got 0."),
    (lambda: Layout.from_lengths([3, -2]), ValueError, "lengths[1] must be at least 0. Got -2."),
    (lambda: Layout.from_lengths([3, 1.5]), TypeError, "lengths[1] must be an integer. Got 1.5."),
    (lambda: Layout("spiral", 4, 1), ValueError, "kind must be one of contiguous, striped, zigzag, uneven"),
    (lambda: Layout("uneven", 4, 2, lengths=(1, 2)), ValueError, "sum to 4. Got 2 that sum to 3."),
    (lambda: Layout("zigzag", 4, 2, lengths=(2, 2)), ValueError, "with lengths if and only if 'uneven'"),
    (lambda: Z.count(2), IndexError, "rank must be in [0, 2). Got 2."),
    (lambda: Z.positions(-1), IndexError, "rank must be in [0, 2). Got -1."),
    (lambda: Z.count(1.0), TypeError, "rank must be an integer. Got 1.0."),
    (lambda: Z.below(True, 3), TypeError, "rank must be an integer. Got True."),
    (lambda: Z.below(np.array([0, 2]), 3), IndexError, "rank must be in [0, 2). Got 2."),
    (lambda: Z.below(0, 1.5), TypeError, "x must be integers. Got dtype float64."),
    (lambda: Z.global_positions(0, [True]), TypeError, "index must be integers. Got dtype bool."),
    (lambda: Z.owner(10), IndexError, "positions must be in [0, 10). Got 10 to 10."),
    (lambda: Z.shard(X, 2), IndexError, "rank must be in [0, 2). Got 2."),
    (lambda: Z.shard(X, 0, axis=1), ValueError, "x must have 10 positions on axis 1 to fit Layout.zigzag"),
    (lambda: Z.shard(X, 0, axis=2), ValueError, "axis must be one of the 2 axes of x. Got axis=2."),
    (lambda: Z.shard(X[:, 0], 0), ValueError, "Got axis=-2. Pass axis=0."),
    (lambda: Z.shard([1] * 10, 0), TypeError, "x must be an array. Got list. Convert it"),
    (lambda: Z.unshard([X[:5]]), ValueError, "one for each of 2 ranks. Got 1."),
    (lambda: Z.unshard([X[:4], X[:6]]), ValueError, "shard of rank 0 must have shape (5, 3)"),
    (lambda: Z.unshard([X[:5], X[:6]]), ValueError, "Got (6, 3) and float64."),
    (lambda: Z.unshard([X[:5], X[:5, :2]]), ValueError, "shard of rank 1 must have shape (5, 3)"),
    (lambda: Z.unshard([X[:5], X[:5].astype("f4")]), ValueError, "Got (5, 3) and float32."),
    (lambda: Z.unshard([X[:5], X[None, :5]]), ValueError, "as that of rank 0 is. Got 3 axes"),
    (lambda: Z.unshard([X[:5, 0], X[:5, 0]]), ValueError, "Got axis=-2. Pass axis=0."),
    (lambda: Z.unshard([X[:5], [1]]), ValueError, "shard of rank 1 must be an array"),
]


@pytest.mark.parametrize(("call", "error", "message"), WRONG, ids=[row[2][:40] for row in WRONG])
def test_wrong_arguments_say_the_rule_what_was_got_and_the_cure(call, error, message):
    with pytest.raises(error) as caught:
        call()
    text = str(caught.value)
    assert message in text
    assert text.count(". ") >= 2 and text.endswith("."), "rule, then 'Got ...', then the cure"


def test_23_a_layout_that_does_not_fit_the_lengths_is_an_error():
    contiguous = Layout.contiguous(length=30, ranks=4)
    x = np.arange(30)
    shards = [contiguous.shard(x, rank, axis=0) for rank in range(4)]
    with pytest.raises(ValueError, match=r"shard of rank 0 must have shape \(7,\).*Got \(8,\)"):
        Layout.zigzag(length=30, ranks=4).unshard(shards, axis=0)


@given(data=st.data())
def test_holders_are_the_ranks_with_a_position_in_an_interval(data: st.DataObject) -> None:
    """Runs of chunks that begin anywhere, go around the end, or all the way; chunks and ranks left empty."""
    S, P = data.draw(st.integers(1, 30)), data.draw(st.integers(1, 6))
    layout = data.draw(st.sampled_from(layouts_of(S, P)))
    ends = st.lists(st.integers(0, S), min_size=2, max_size=2, unique=True).map(sorted)
    intervals = data.draw(st.lists(ends, max_size=4))
    lo, hi = np.array(intervals, np.int64).reshape(-1, 2).T
    want = [any(a <= p < b for p in layout.positions(rank) for a, b in intervals) for rank in range(P)]
    assert layout.holders(lo, hi).tolist() == want
