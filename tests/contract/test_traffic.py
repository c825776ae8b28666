"""Bytes, messages and work, counted where they happen: in the transport and in the kernels."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest

import ringcore as rc
from ringcore.block import GenericBackend

D = 16  # rows of 64 bytes and more: arrays on the wire need no padding


class Sent(NamedTuple):
    """Messages and bytes of arrays that all ranks together have sent."""

    messages: int
    nbytes: int


class Counted(NamedTuple):
    forward: Sent
    backward: Sent


def count(q_layout, mask, *, k_layout=None, H=1, G=1, wrt=("q", "k", "v"), **options) -> Counted:
    """Run attention and its pullback on thread ranks; what the transports counted."""
    keys = k_layout or q_layout

    def on_rank(ring):
        rng = np.random.default_rng(ring.rank)
        L, L_k = q_layout.count(ring.rank), keys.count(ring.rank)
        q, k, v, dout = (
            rng.standard_normal((heads, n, D)).astype(np.float32)
            for heads, n in ((H, L), (G, L_k), (G, L_k), (H, L))
        )
        _, pullback = rc.attention_vjp(
            q, k, v, ring=ring, layout=q_layout, k_layout=k_layout, mask=mask, **options
        )
        forward = ring.traffic.messages, ring.traffic.bytes
        pullback(dout, wrt=wrt)
        assert sum(ring.traffic.by_peer.values()) == ring.traffic.bytes
        return (*forward, ring.traffic.messages, ring.traffic.bytes)

    n, size, n_all, size_all = np.sum(rc.run_ranks(q_layout.ranks, on_rank, timeout=30.0), axis=0)
    return Counted(Sent(int(n), int(size)), Sent(int(n_all - n), int(size_all - size)))


def block_bytes(length: int) -> int:
    """K and V of one head, float32."""
    return 2 * length * D * 4


# ------------------------------------------------------------------ hops


@pytest.mark.parametrize("way", ["ring", "direct", "auto"])
@pytest.mark.parametrize("ranks", range(1, 9))
def test_traffic_contiguous_causal_moves_half_of_what_full_does(ranks, way):
    layout = rc.Layout.contiguous(length=16 * ranks, ranks=ranks)
    for mask, hops in ((rc.causal(), ranks * (ranks - 1) // 2), (rc.full(), ranks * (ranks - 1))):
        sent = count(layout, mask, side="kv", way=way).forward
        assert sent == Sent(hops, hops * block_bytes(16))


def test_traffic_a_two_sided_window_goes_direct_to_its_neighbours():
    layout, mask = rc.Layout.contiguous(length=512, ranks=8), rc.window(40, 40)
    for way, blocks in (("direct", 14), ("ring", 50), ("auto", 14)):
        assert count(layout, mask, side="kv", way=way).forward == Sent(blocks, blocks * block_bytes(64))


def test_traffic_a_causal_window_is_the_same_both_ways():
    layout = rc.Layout.contiguous(length=512, ranks=8)
    for way in ("ring", "direct"):
        assert count(layout, rc.window(40, 0), side="kv", way=way).forward == Sent(7, 7 * block_bytes(64))


@pytest.mark.parametrize("way", ["ring", "direct"])
@pytest.mark.parametrize("side", ["kv", "q"])
def test_traffic_documents_that_stay_on_their_rank_send_nothing(side, way):
    layout = rc.Layout.contiguous(length=64, ranks=4)
    assert count(layout, rc.documents([16, 10, 6, 16, 16]), side=side, way=way) == ((0, 0), (0, 0))


def test_traffic_empty_shards_are_not_carried_about():
    """Nobody needs the keys of a rank that has none."""
    layout = rc.Layout.from_lengths([0, 32, 0, 32, 0])
    sent = count(layout, rc.full(), side="kv", way="direct").forward
    assert sent == Sent(2, 2 * block_bytes(32))


# ------------------------------------------------------------------ backward


@pytest.mark.parametrize("ranks", [2, 3, 8])
@pytest.mark.parametrize("way", ["ring", "direct"])
def test_traffic_backward_sends_each_block_and_each_sum(ranks, way):
    """Full attention: P (P - 1) blocks, and as many sums of the accumulation dtype that follow them."""
    layout = rc.Layout.contiguous(length=16 * ranks, ranks=ranks)
    hops = ranks * (ranks - 1)
    sent = count(layout, rc.full(), side="kv", way=way).backward
    assert sent == Sent(2 * hops, 2 * hops * block_bytes(16))
    sent = count(layout, rc.full(), side="q", way=way).backward
    queries = block_bytes(16) + 3 * 16 * 4  # q and dout, m, l and delta
    assert sent == Sent(2 * hops, hops * (queries + 16 * D * 4))


@pytest.mark.parametrize("way", ["ring", "direct"])
@pytest.mark.parametrize("mask", [rc.causal(), rc.full(), rc.window(20, 5)], ids=repr)
def test_traffic_only_dq_sends_no_dk_and_dv(mask, way):
    layout = rc.Layout.contiguous(length=128, ranks=8)
    both = count(layout, mask, side="kv", way=way)
    only = count(layout, mask, side="kv", way=way, wrt=("q",))
    assert only.backward == only.forward == both.forward  # K and V again, and nothing else
    assert both.backward.messages > only.backward.messages


@pytest.mark.parametrize("way", ["ring", "direct"])
def test_traffic_only_dk_and_dv_send_no_dq_where_queries_travel(way):
    layout = rc.Layout.contiguous(length=128, ranks=8)
    both = count(layout, rc.full(), side="q", way=way).backward
    only = count(layout, rc.full(), side="q", way=way, wrt=("k", "v")).backward
    assert both.messages == 2 * only.messages
    assert both.nbytes - only.nbytes == 56 * 16 * D * 4


def test_traffic_only_dv_sends_half_of_the_sums():
    layout = rc.Layout.contiguous(length=64, ranks=4)
    both = count(layout, rc.full(), side="kv", way="ring").backward
    only = count(layout, rc.full(), side="kv", way="ring", wrt=("v",)).backward
    assert both.nbytes - only.nbytes == 12 * 16 * D * 4


# ------------------------------------------------------------------ auto


CHOICES = [(side, way) for side in ("kv", "q") for way in ("ring", "direct")]
ROOM = {  # names, then layouts of queries and keys, mask, heads
    "causal": (rc.Layout.contiguous(length=128, ranks=8), None, rc.causal(), (1, 1)),
    "zigzag": (rc.Layout.zigzag(length=128, ranks=4), None, rc.causal(), (1, 1)),
    "striped": (rc.Layout.striped(length=96, ranks=3), None, rc.causal(), (4, 4)),
    "MQA": (rc.Layout.contiguous(length=96, ranks=6), None, rc.full(), (8, 1)),
    "window": (rc.Layout.contiguous(length=128, ranks=8), None, rc.window(9, 9), (1, 1)),
    "wide window": (rc.Layout.contiguous(length=128, ranks=8), None, rc.window(60, 30), (2, 1)),
    "few queries": (
        rc.Layout.contiguous(length=16, ranks=4),
        rc.Layout.contiguous(length=256, ranks=4),
        rc.full(),
        (2, 2),
    ),
    "few keys": (
        rc.Layout.contiguous(length=256, ranks=4),
        rc.Layout.contiguous(length=16, ranks=4),
        rc.full(),
        (2, 2),
    ),
    "uneven": (
        rc.Layout.from_lengths([80, 0, 16, 32]),
        rc.Layout.from_lengths([16, 16, 80, 16]),
        rc.window(30, 50),
        (2, 1),
    ),
    "documents": (rc.Layout.zigzag(length=128, ranks=5), None, rc.documents([50, 3, 40, 35]), (3, 1)),
}


EVERYTHING = ("q", "k", "v")
WANTED = [(name, EVERYTHING) for name in ROOM] + [
    (name, wrt) for name in ("causal", "window", "few queries") for wrt in (("q",), ("k", "v"))
]


@pytest.mark.parametrize(("name", "wrt"), WANTED)
def test_traffic_auto_moves_the_fewest_bytes(name, wrt):
    q_layout, k_layout, mask, (H, G) = ROOM[name]
    common = {"k_layout": k_layout, "H": H, "G": G, "wrt": wrt}
    asked = {(side, way): count(q_layout, mask, side=side, way=way, **common) for side, way in CHOICES}
    auto = count(q_layout, mask, **common)
    assert auto.forward.nbytes == min(sent.forward.nbytes for sent in asked.values())
    assert auto.backward.nbytes == min(sent.backward.nbytes for sent in asked.values())
    if wrt != EVERYTHING:
        return
    for side in ("kv", "q"):
        best = min(asked[side, way].forward.nbytes for way in ("ring", "direct"))
        assert count(q_layout, mask, side=side, **common).forward.nbytes == best
    for way in ("ring", "direct"):
        best = min(asked[side, way].backward.nbytes for side in ("kv", "q"))
        assert count(q_layout, mask, way=way, **common).backward.nbytes == best


def test_traffic_few_queries_travel_to_many_keys():
    q_layout, k_layout, mask, (H, G) = ROOM["few queries"]
    common = {"k_layout": k_layout, "H": H, "G": G}
    auto = count(q_layout, mask, **common)
    queries = count(q_layout, mask, side="q", **common)
    keys = count(q_layout, mask, side="kv", **common)
    assert auto == queries
    assert auto.forward.nbytes < keys.forward.nbytes / 4
    assert auto.backward.nbytes < keys.backward.nbytes / 4


def test_traffic_backward_with_as_many_key_heads_as_query_heads_moves_the_queries():
    """q, dout, m, l, delta and dq are fewer bytes than K, V, dK and dV."""
    layout = rc.Layout.contiguous(length=64, ranks=4)
    auto = count(layout, rc.full(), H=2, G=2).backward
    assert auto == count(layout, rc.full(), H=2, G=2, side="q").backward
    assert auto.nbytes < count(layout, rc.full(), H=2, G=2, side="kv").backward.nbytes


def test_traffic_a_dense_mask_keeps_the_queries_at_home():
    def on_rank(ring):
        x = np.ones((1, 4, D), np.float32)
        everything = rc.dense(np.ones((1, 4 * ring.size), bool))
        rc.attention(x[:, :1], x, x, ring=ring, mask=everything)  # one query: it would be cheaper to move
        return ring.traffic.bytes

    assert sum(rc.run_ranks(4, on_rank, timeout=30.0)) == 4 * 3 * block_bytes(4)


# ------------------------------------------------------------------ work


def causal_pairs(layout: rc.Layout) -> np.ndarray:
    """Query-key pairs that each rank computes under a causal mask."""
    return np.array([np.sum(layout.positions(rank) + 1) for rank in range(layout.ranks)])


@pytest.mark.parametrize("ranks", range(1, 9))
def test_traffic_zigzag_balances_causal_attention(ranks):
    for S in [*range(2 * ranks, 6 * ranks + 2), 64 * ranks + 1, 1000, 9973]:
        pairs = causal_pairs(rc.Layout.zigzag(length=S, ranks=ranks))
        assert pairs.sum() == S * (S + 1) // 2
        assert pairs.max() / pairs.mean() <= 1 + 2 * ranks / S, S


@pytest.mark.parametrize(("ranks", "S"), [(2, 4), (3, 6), (3, 23), (4, 31), (8, 16), (8, 45)])
def test_traffic_the_kernels_compute_what_the_layout_promises(ranks, S):
    """Counted by each rank's kernels, in tiles of one query and one key."""
    layout = rc.Layout.zigzag(length=S, ranks=ranks)

    def on_rank(ring):
        x = np.ones((1, layout.count(ring.rank), 2))
        meter = rc.Meter()
        rc.attention(
            x, x, x, ring=ring, layout=layout, mask=rc.causal(), side="kv", meter=meter,
            backend=GenericBackend(tile=(1, 1)),
        )  # fmt: skip
        return meter.scores

    work = np.array(rc.run_ranks(ranks, on_rank, timeout=30.0))
    assert np.array_equal(work, causal_pairs(layout))
    assert work.max() / work.mean() <= 1 + 2 * ranks / S


def test_traffic_contiguous_causal_is_not_balanced():
    """What zigzag is for."""
    pairs = causal_pairs(rc.Layout.contiguous(length=800, ranks=8))
    assert pairs.max() / pairs.mean() > 1.8
