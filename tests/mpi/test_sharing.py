"""Blocks of a node are read where they lie: the same bits as by messages, and nothing of them is sent."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ringcore_mpi import shared
from ringcore_numpy import NumpyBackend

import ringcore as rc
from ringcore.testing import Problem, solve_on
from ringcore.testing.strategies import attention_problems
from tests.mpi.together import P, gathered, same_as_threads, several
from tests.profiles import examples


@contextmanager
def sharing(ring: rc.Ring, nodes: list[int] | None = None, shares_from: int | None = 0) -> Iterator[None]:
    """Every block is shared between ranks of the same number; all of these must be on one machine."""
    transport = ring.transport
    before = transport.nodes, transport.shares_from
    assert transport.nodes == (0,) * ring.size
    try:
        transport.shares_from = shares_from
        transport.nodes = transport.nodes if nodes is None else tuple(nodes)
        yield
    finally:
        transport.nodes, transport.shares_from = before


@several
@settings(max_examples=examples(150))
@given(
    problem=attention_problems(np, ranks=P, dtypes=("float64", "float32", "bfloat16")),
    nodes=st.lists(st.integers(0, 2), min_size=P, max_size=P),
)
def test_the_same_bits_as_by_messages(ring: rc.Ring, problem: Problem, nodes: list[int]) -> None:
    with sharing(ring, nodes):
        same_as_threads(ring, lambda ring: solve_on(ring, problem, backend=NumpyBackend))


def pulled(ring: rc.Ring, x: np.ndarray, mask: rc.Mask | None) -> tuple[np.ndarray, ...]:
    layout = rc.Layout.contiguous(length=x.shape[-2] * ring.size, ranks=ring.size)
    out, pullback = rc.attention_vjp(x, x, x, ring=ring, layout=layout, mask=mask, side="kv")
    return out, *pullback(out)


@several
def test_only_sums_are_sent_within_a_node(ring: rc.Ring) -> None:
    """Forward sends nothing; backward dK and dV once around, from everybody to everybody's owner."""
    x = np.random.default_rng(ring.rank).standard_normal((2, 16, 8))
    traffic = ring.transport.traffic
    with sharing(ring):
        before = traffic.messages, traffic.bytes
        layout = rc.Layout.contiguous(length=16 * ring.size, ranks=ring.size)
        rc.attention(x, x, x, ring=ring, layout=layout)
        assert (traffic.messages, traffic.bytes) == before
        pulled(ring, x, None)
        assert traffic.bytes - before[1] == (ring.size - 1) * 2 * x.nbytes


@several
def test_small_blocks_are_sent_and_large_ones_shared(ring: rc.Ring) -> None:
    x = np.ones((1, 4, 8), np.float32)
    layout = rc.Layout.contiguous(length=4 * ring.size, ranks=ring.size)
    saved = (ring.size - 1) * 2 * x.nbytes  # that is what sharing would save each rank
    sent = []
    for least in (saved + 1, saved, None):
        with sharing(ring, shares_from=least):
            before = ring.transport.traffic.bytes
            rc.attention(x, x, x, ring=ring, layout=layout)
            sent.append(ring.transport.traffic.bytes - before)
    assert sent[1] == 0 < sent[0] == sent[2]


@several
def test_where_one_rank_cannot_share_all_send(ring: rc.Ring, monkeypatch: pytest.MonkeyPatch) -> None:
    """No memfd, or another process's files cannot be opened: on the last rank only."""
    x = np.random.default_rng(ring.rank).standard_normal((2, 16, 8))
    want = pulled(ring, x, None)

    def fails(*args: object) -> int:
        raise PermissionError("not here")

    for name in ("_fill", "_opened"):
        with monkeypatch.context() as patch, sharing(ring):
            if ring.rank == ring.size - 1:
                patch.setattr(shared, name, fails)
            before = ring.transport.traffic.bytes
            got = pulled(ring, x, None)
            sent = sum(gathered(ring, ring.transport.traffic.bytes - before))
        assert all(np.array_equal(a, b) for a, b in zip(got, want, strict=True))
        assert sent > ring.size * (ring.size - 1) * 2 * x.nbytes, "blocks, too"


@several
def test_what_others_show_is_read_only_and_outlives_the_call(ring: rc.Ring) -> None:
    mine = np.full(5000 if ring.rank else 0, ring.rank, np.uint8)
    shown = ring.transport.publish(mine, 10.0)
    assert shown is not None
    mine[:] = 255
    assert {rank: x.shape[0] for rank, x in shown.items()} == {r: 5000 if r else 0 for r in range(ring.size)}
    gathered(ring, None)
    for rank, x in shown.items():
        assert (x == rank).all() and not x.flags.writeable
