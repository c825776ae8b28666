"""examples/transformer: a rank's memory goes with its own length L, not with the sequence's.

As in tests/contract/one_of_many.py one rank runs alone, so that the allocator's peak is its own; here the
rehearsal is a real step.
"""

from __future__ import annotations

import tracemalloc
from functools import cache
from typing import Any

import blockwise
import dna
import model
import numpy as np
import pytest
from blockwise import Place
from weights import Sizes, initial

import ringcore as rc
from tests.contract.one_of_many import _Rehearsal, _StandIns

WIDE = Sizes(layers=4, width=128, heads=4, kv_heads=2, hidden=256)
CHUNK = 64


class _Recorded(_Rehearsal):
    """Notes the control messages of a step in which arrays do move."""

    def exchange(self, sends: Any, recvs: Any) -> Any:
        return self.inner.exchange(sends, recvs)


def step(ring: rc.Ring, length: int, sizes: Sizes, genome: np.ndarray | None) -> None:
    layout = rc.Layout.zigzag(length=length, ranks=ring.size)
    weights = initial(sizes, 0, "float32")
    shard = dna.shard(genome, 0, ring, layout)
    model.loss_and_gradient(weights, sizes, shard, Place.of(ring, layout, CHUNK))


@cache
def peak(length: int, ranks: int, sizes: Sizes = WIDE) -> int:
    """Most bytes that the last rank has allocated at a time during a step of training."""
    genome = np.random.default_rng(0).integers(0, 4, length + 1).astype(np.uint8)

    def rehearse(ring: rc.Ring) -> list[list[bytes]]:
        transport = _Recorded(ring.transport)
        step(rc.Ring(transport), length, sizes, genome)
        return transport.heard

    heard = rc.run_ranks(ranks, rehearse, timeout=60.0)[-1]
    alone = rc.Ring(_StandIns(ranks - 1, ranks, heard))
    tracemalloc.start()
    try:
        step(alone, length, sizes, genome if ranks == 1 else None)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_at_equal_length_per_rank_a_longer_sequence_takes_no_more_memory():
    """L = 512 of 1,024 tokens, and of 2,048: with a matrix (L, S) the second would take 1 MB a head more."""
    short, long = peak(1024, 2), peak(2048, 4)
    print(f"MB: {short / 1e6:.2f}, {long / 1e6:.2f}")
    assert long <= 1.1 * short


def test_what_a_token_takes_is_what_is_written_down():
    """What each of a rank's tokens adds to the peak, in numbers of C = H D = 2 G D.

    Kept by a layer: x, out, and m and l of each head. While one layer is pulled back: q, k with v, dout, dx,
    dy, dq, dk with dv; two blocks under way of k with v, or of q with dout. The hidden activations, three
    times F in each layer, would be 24 C more.
    """
    C, H = WIDE.width, WIDE.heads
    kept = WIDE.layers * (2 * C + 2 * H)
    of_one_layer = 7 * C
    found = (peak(4096, 2) - peak(2048, 2)) / 1024 / 4  # longer than a tile, whose room does not grow
    print(f"numbers a token: {found:.0f}, of which kept {kept}")
    assert kept <= found <= kept + of_one_layer + 4 * C


def test_a_layer_keeps_its_input_and_the_residuals_of_attention_and_nothing_else():
    length, sizes = 1000, WIDE
    layer = initial(sizes, 0, "float32").layers[0]
    place = Place.of(rc.Ring(), rc.Layout.contiguous(length=length, ranks=1), CHUNK)
    x = np.random.default_rng(0).standard_normal((length, sizes.width), np.float32)
    blockwise.forward(layer, sizes, x, place)  # so that whatever is cached is
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        y, kept = blockwise.forward(layer, sizes, x, place)
        del y
        added = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert kept.x is x
    assert added == pytest.approx(4 * length * sizes.heads * (sizes.head_dim + 2), abs=20_000)


def test_hidden_activations_exist_for_one_chunk_at_a_time():
    """F = 4,096 and L = 2,048: one array of all hidden activations is 32 MiB."""
    sizes = Sizes(layers=1, width=16, heads=1, kv_heads=1, hidden=4096)
    ring, layout = rc.Ring(), rc.Layout.contiguous(length=2048, ranks=1)
    weights, shard = initial(sizes, 0, "float32"), dna.shard(np.zeros(2049, np.uint8), 0, ring, layout)

    def peak_of(chunk: int) -> float:
        tracemalloc.start()
        try:
            model.loss_and_gradient(weights, sizes, shard, Place.of(ring, layout, chunk))
            return tracemalloc.get_traced_memory()[1] / 2**20
        finally:
            tracemalloc.stop()

    assert peak_of(16) < 16
    assert peak_of(2048) > 32  # that is, the figure above does tell something
