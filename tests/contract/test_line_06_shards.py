"""Contract, line 6: unshard(shard(x)) == x exactly, for every layout, length, P, axis and dtype."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import ringcore as rc
from ringcore.testing.strategies import layouts
from tests.contract.problems import layouts_of

DTYPES = ("float64", "float32", "float16", "bfloat16", "int64", "int8", "uint8", "bool", "complex64")
NOT_IN_THE_STANDARD = {"float16", "bfloat16"}


def numbers(shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """Every element differs from its neighbours, where the dtype allows."""
    count = np.arange(int(np.prod(shape))).reshape(shape)
    if dtype == "bfloat16":
        return (count % 251).astype(ml_dtypes.bfloat16)
    return (count % 3 == 0) if dtype == "bool" else (count % 127).astype(dtype)


@given(layout=layouts(), dtype=st.sampled_from(DTYPES), axis=st.integers(-3, 2))
def test_line_06_there_and_back(xp, layout, dtype, axis):
    if xp.name == "array-api-strict" and dtype in NOT_IN_THE_STANDARD:
        dtype = "float32"
    shape = [2, 3, 1]
    shape[axis] = layout.length
    values = numbers(tuple(shape), dtype)
    x = xp.asarray(values)
    shards = [layout.shard(x, rank, axis=axis) for rank in range(layout.ranks)]
    back = layout.unshard(shards, axis=axis)
    assert back.dtype == x.dtype
    assert xp.numpy(back).tobytes() == values.tobytes()
    for rank, part in enumerate(shards):  # the shard is what `positions` says it is
        assert np.array_equal(xp.numpy(part), np.take(values, layout.positions(rank), axis=axis))


@pytest.mark.parametrize("ranks", range(1, 9))
@pytest.mark.parametrize("length", [0, 1, 2, 7, 16, 26, 97])
def test_line_06_every_position_is_on_one_rank(length, ranks):
    for layout in layouts_of(length, ranks):
        held = [layout.positions(rank) for rank in range(ranks)]
        assert sorted(np.concatenate(held).tolist()) == list(range(length))
        assert all(np.all(np.diff(p) > 0) for p in held)
        labels = np.array([f"base {i}" for i in range(length)], dtype=object)
        assert layout.unshard([layout.shard(labels, r, axis=0) for r in range(ranks)], axis=0).tolist() == (
            labels.tolist()
        )


@pytest.mark.parametrize("ranks", [1, 2, 5])
@pytest.mark.parametrize("dtype", DTYPES)
def test_line_06_scatter_and_gather_move_every_bit(ranks, dtype):
    for layout in layouts_of(13, ranks):
        x = numbers((2, 13, 3), dtype)

        def on_rank(ring, x=x, layout=layout):
            mine = ring.scatter(x if ring.rank == 0 else None, layout)
            assert mine.tobytes() == layout.shard(x, ring.rank).tobytes()
            return ring.gather(mine, layout)

        back, *others = rc.run_ranks(ranks, on_rank, timeout=20.0)
        assert back.dtype == x.dtype
        assert back.tobytes() == x.tobytes()
        assert others == [None] * (ranks - 1)
