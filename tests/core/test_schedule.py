"""Schedules: every rank's ticks played against each other, with needs of every shape."""

from __future__ import annotations

from collections import Counter, defaultdict
from itertools import product
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

import ringcore as rc
from ringcore.schedule import BLOCK, SUM, WAYS, Message, Reach, Tick, in_place, schedule
from ringcore.step import lower, needed


class Load(NamedTuple):
    """Bytes of each owner's block, and of the sum that follows it."""

    blocks: np.ndarray
    sums: np.ndarray | None


def traffic(needs: np.ndarray, load: Load, way: str) -> int:
    return Reach.of(needs).traffic(load.blocks, load.sums, way)


class Played(Counter[str]):
    """Messages and bytes counted while all ranks play their ticks; anything wrong fails an assertion.

    With ``nodes``, ranks of the same node read each other's blocks in place.
    """

    def __init__(self, needs: np.ndarray, way: str, load: Load, nodes: list[int] | None = None) -> None:
        super().__init__()
        P = needs.shape[0]
        with_sums = load.sums is not None
        ticks = [schedule(needs, rank, way, with_sums=with_sums) for rank in range(P)]
        if nodes is not None:
            ticks = [in_place(mine, rank, nodes) for rank, mine in enumerate(ticks)]
        alone = list(range(P)) if nodes is None else nodes
        lying = [{other for other in range(P) if alone[other] == alone[rank]} for rank in range(P)]
        computed: list[Counter[int]] = [Counter() for _ in range(P)]
        blocks: list[set[int]] = [set(here) for here in lying]
        sums: list[dict[int, set[int]]] = [{} for _ in range(P)]  # block -> who has added to it
        home: list[set[int]] = [set() for _ in range(P)]
        hops: Counter[int] = Counter()
        for t in range(max(map(len, ticks))):
            now = [ticks[rank][t] if t < len(ticks[rank]) else Tick(None) for rank in range(P)]
            sent: dict[tuple[int, int, str, int], set[int] | None] = {}
            for rank, tick in enumerate(now):
                assert len({m.what for m in tick.sends}) == len(tick.sends), "one message of a kind at a time"
                for what, block, to in tick.sends:
                    assert to != rank
                    if what == BLOCK:
                        assert block in blocks[rank], "sends a block that is not here"
                        assert block not in lying[to], "sends what can be read where it lies"
                        hops[block] += 1
                        self["bytes"] += int(load.blocks[block])
                        sent[rank, to, what, block] = None
                    else:
                        assert with_sums
                        sent[rank, to, what, block] = sums[rank].pop(block)  # it is there, and complete here
                        self["bytes"] += int(load.sums[block])
                    self[what] += 1
            received = {(m.peer, rank, m.what, m.block) for rank in range(P) for m in now[rank].recvs}
            assert received == set(sent), f"tick {t}: what is sent is not what is received"
            assert sum(len(tick.recvs) for tick in now) == len(received)
            for rank, tick in enumerate(now):
                if tick.compute is not None:
                    assert tick.compute in blocks[rank], "computes with a block that is not here"
                    computed[rank][tick.compute] += 1
                blocks[rank] = set(lying[rank])  # what visits leaves after its hop
                for what, block, source in tick.recvs:
                    if what == BLOCK:
                        blocks[rank].add(block)
                    else:
                        arrived = sent[source, rank, what, block]
                        assert arrived is not None
                        into = home[rank] if block == rank else sums[rank].setdefault(block, set())
                        assert not into & arrived, "counted twice"
                        into |= arrived
                assert len(blocks[rank] - lying[rank]) <= 1, "one that visits"
                if tick.compute is not None:
                    into = home[rank] if tick.compute == rank else sums[rank].setdefault(tick.compute, set())
                    assert rank not in into
                    into.add(rank)
        for rank in range(P):
            assert computed[rank] == Counter(np.flatnonzero(needs[rank]).tolist()), "each needed block once"
            if with_sums:
                assert home[rank] == set(np.flatnonzero(needs[:, rank])), "a sum is not complete"
                assert not sums[rank], "a sum has not gone home"
        assert max(hops.values(), default=0) <= P - 1
        assert max(map(len, ticks)) <= P + 1
        idle = any(mine and mine[-1] == Tick(None) for mine in ticks)
        assert not idle or nodes is not None, "trailing idle ticks"
        self["most hops"] = max(hops.values(), default=0)


def loads(P: int, with_sums: bool) -> Load:
    """Sizes that tell owners and kinds apart in a total."""
    return Load(10 ** np.arange(P) * 3, 10 ** np.arange(P) if with_sums else None)


@pytest.mark.parametrize("with_sums", [False, True])
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("P", [1, 2, 3])
def test_all_needs_of_up_to_three_ranks(P: int, way: str, with_sums: bool) -> None:
    for bits in product([False, True], repeat=P * P):
        needs, load = np.array(bits).reshape(P, P), loads(P, with_sums)
        assert Played(needs, way, load)["bytes"] == traffic(needs, load, way), needs


@st.composite
def random_needs(draw: st.DrawFn) -> np.ndarray:
    P = draw(st.integers(1, 9))
    return draw(arrays(bool, (P, P), elements=st.booleans(), fill=st.booleans()))


@given(needs=random_needs(), way=st.sampled_from(WAYS), with_sums=st.booleans())
def test_any_needs(needs: np.ndarray, way: str, with_sums: bool) -> None:
    load = loads(needs.shape[0], with_sums)
    played = Played(needs, way, load)
    assert played["bytes"] == traffic(needs, load, way)
    away = int((needs & ~np.eye(len(needs), dtype=bool)).sum())
    if way == "direct":
        assert played[BLOCK] == away and played[SUM] == (away if with_sums else 0)
    else:
        assert played[BLOCK] >= away, "whoever needs a block has been sent it"


@given(needs=random_needs(), way=st.sampled_from(WAYS), with_sums=st.booleans(), data=st.data())
def test_any_needs_where_ranks_of_a_node_read_in_place(
    needs: np.ndarray, way: str, with_sums: bool, data: st.DataObject
) -> None:
    P = len(needs)
    nodes = data.draw(st.lists(st.integers(0, 2), min_size=P, max_size=P))
    load = loads(P, with_sums)
    played, sent = Played(needs, way, load, nodes), Played(needs, way, load)
    assert played[SUM] == sent[SUM]
    across = needs & (np.array(nodes)[:, None] != np.array(nodes))
    if way == "direct":
        assert played[BLOCK] == across.sum()
    else:
        assert across.sum() <= played[BLOCK] <= sent[BLOCK]
    assert Played(needs, way, load, [0] * P)[BLOCK] == 0


@given(needs=random_needs())
def test_reach_is_the_nearest_and_the_farthest_rank_that_needs_a_block(needs: np.ndarray) -> None:
    P = len(needs)
    reach = Reach.of(needs)
    for block in range(P):
        hops = [(rank - block) % P for rank in range(P) if rank != block and needs[rank, block]]
        assert (reach.first[block], reach.last[block]) == ((min(hops), max(hops)) if hops else (0, 0))
        assert reach.away[block] == len(hops)


@pytest.mark.parametrize("P", range(1, 10))
def test_contiguous_causal_moves_half_of_what_full_moves(P: int) -> None:
    for way in WAYS:
        one = Load(np.ones(P), None)
        causal, full = np.tri(P, dtype=bool), np.ones((P, P), bool)
        assert Played(causal, way, one)[BLOCK] == traffic(causal, one, way) == P * (P - 1) // 2
        assert Played(full, way, one)[BLOCK] == traffic(full, one, way) == P * (P - 1)


def test_a_two_sided_window_is_cheaper_direct() -> None:
    """S = 512, P = 8: each rank needs its two neighbours' keys; round the ring that is a long way."""
    layout, one = rc.Layout.contiguous(length=512, ranks=8), Load(np.ones(8), None)
    needs = np.stack([needed(lower(rc.window(40, 40), layout.positions(r), 512), layout) for r in range(8)])
    assert Played(needs, "direct", one)[BLOCK] == traffic(needs, one, "direct") == 14
    assert Played(needs, "ring", one)[BLOCK] == traffic(needs, one, "ring") == 50


def test_one_rank_sends_nothing_and_nobody_needs_nothing() -> None:
    assert schedule(np.ones((1, 1), bool), 0, "ring", with_sums=True) == (Tick(0),)
    assert schedule(np.zeros((3, 3), bool), 1, "direct", with_sums=True) == ()


def test_a_sum_follows_one_hop_behind_and_goes_straight_home() -> None:
    """Written out: block 0 of three ranks, needed by all, nothing else needed."""
    needs = np.zeros((3, 3), bool)
    needs[:, 0] = True
    assert [schedule(needs, rank, "ring", with_sums=True) for rank in range(3)] == [
        (
            Tick(0, sends=(Message(BLOCK, 0, 1),)),
            Tick(None),
            Tick(None),
            Tick(None, recvs=(Message(SUM, 0, 2),)),
        ),
        (
            Tick(None, recvs=(Message(BLOCK, 0, 0),)),
            Tick(0, sends=(Message(BLOCK, 0, 2),)),
            Tick(None, sends=(Message(SUM, 0, 2),)),
        ),
        (
            Tick(None),
            Tick(None, recvs=(Message(BLOCK, 0, 1),)),
            Tick(0, recvs=(Message(SUM, 0, 1),)),
            Tick(None, sends=(Message(SUM, 0, 0),)),
        ),
    ]


def test_ticks_tell_their_messages_apart() -> None:
    """The driver tags a message by hop and kind: between two ranks no two at a hop may be of one kind."""
    for P in range(1, 6):
        for way in WAYS:
            for rank in range(P):
                for tick in schedule(np.ones((P, P), bool), rank, way, with_sums=True):
                    for messages in (tick.sends, tick.recvs):
                        kinds: dict[int, list[str]] = defaultdict(list)
                        for message in messages:
                            kinds[message.peer].append(message.what)
                        assert all(len(set(found)) == len(found) for found in kinds.values())
