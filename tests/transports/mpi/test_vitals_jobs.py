"""Who is alive, in whole simulated jobs: whoever waits for a slow rank goes on, for a dead one does not."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from ringcore.errors import PeerTimeout
from tests.profiles import examples
from tests.transports.mpi.network import Network

TIMEOUT = 4.0
PERIOD = 1.0  # between questions
LINK = 1.5  # by which knowledge ages at each link

DELAYS = st.fixed_dictionaries(
    {
        "seed": st.integers(0, 2**16),
        "latency": st.sampled_from([0.01, 0.1, 0.3]),
        "look": st.sampled_from([0.05, 0.1, 0.2]),
    }
)


@st.composite
def waits(draw: st.DrawFn) -> tuple[list[int], dict[int, str]]:
    """For whom each rank waits, and the ranks that do not wait: each computes, or is dead."""
    size = draw(st.integers(2, 9))
    last = draw(st.dictionaries(st.integers(0, size - 1), st.sampled_from(["computes", "dead"]), max_size=3))
    if draw(st.booleans()):  # long chains
        return [(rank - 1) % size for rank in range(size)], last
    peers = [draw(st.integers(0, size - 2)) for _ in range(size)]
    return [peer + (peer >= rank) for rank, peer in enumerate(peers)], last


def chain(rank: int, peers: list[int], last: dict[int, str]) -> list[int]:
    """Whom a rank waits for, whom that one waits for, ... up to one that does not, or is there already."""
    links: list[int] = [rank]
    while links[-1] not in last and links[-1] not in links[:-1]:
        links.append(peers[links[-1]])
    return links[1:]


@settings(max_examples=examples(150))
@given(waits(), DELAYS)
def test_who_waits_for_one_that_computes_goes_on_waiting_and_for_a_dead_one_does_not(case, delays):
    """Each rank by itself: nobody tells."""
    peers, last = case
    scripts = [[("compute", 1e9)] if rank in last else [("receive", peer)] for rank, peer in enumerate(peers)]
    network = Network(scripts, TIMEOUT, telling=False, **delays)
    for rank, what in last.items():
        if what == "dead":
            network.kill(rank)
    network.run(TIMEOUT * 3 + len(peers) * LINK * 2)
    for rank in [rank for rank in network.ranks if rank.number not in last]:
        links = chain(rank.number, peers, last)
        end = last.get(links[-1], "circle")
        event(f"{end} at {len(links)} links")
        if end == "computes":
            assert rank.error is None
            continue
        assert isinstance(rank.error, PeerTimeout)
        assert TIMEOUT < rank.ended <= TIMEOUT + len(links) * LINK + PERIOD
        if end == "dead":
            assert rank.error.peer == links[-1]
            assert "does not answer" in str(rank.error)
        else:
            assert rank.error.peer in links
        for link in links[: links.index(rank.error.peer) + 1]:
            assert f"rank {link} of {len(peers)}" in str(rank.error)


@pytest.mark.parametrize("seed", range(10))
def test_a_long_chain_behind_a_slow_rank(seed):
    """Each link's knowledge is some periods older: eight of them make twice the timeout."""
    scripts = [[("compute", 60.0), ("send", 1)], *([("receive", n), ("send", (n + 2) % 9)] for n in range(8))]
    network = Network(scripts, TIMEOUT, seed=seed).run()
    assert [rank.error for rank in network.ranks] == [None] * 9
    assert min(rank.ended for rank in network.ranks) >= 60.0


@st.composite
def calls(draw: st.DrawFn) -> list[list[tuple[Any, ...]]]:
    """Some calls round a ring: all compare; at each hop a rank sends, computes, and waits for its neighbour.

    Some hops take much longer than the timeout, on some ranks; and between calls a rank may be away.
    """
    size, hops = draw(st.integers(2, 8)), draw(st.integers(1, 4))
    seconds = st.sampled_from([0.0, 0.05, 0.05, 0.5, 2.0, 9.0, 20.0])
    scripts: list[list[tuple[Any, ...]]] = [[] for _ in range(size)]
    for _ in range(draw(st.integers(1, 2))):
        for rank, script in enumerate(scripts):
            script += [("away", draw(st.sampled_from([0.0, 0.0, 1.0, 2.0]))), ("compare",)]
            for _ in range(hops):
                script += [
                    ("send", (rank + 1) % size),
                    ("compute", draw(seconds)),
                    ("receive", (rank - 1) % size),
                ]
    return scripts


@settings(max_examples=examples(120))
@given(calls(), DELAYS)
def test_slow_ranks_are_waited_for_whoever_waits_for_whom(scripts, delays):
    network = Network(scripts, TIMEOUT, **delays).run()
    assert [rank.error for rank in network.ranks] == [None] * len(scripts)


@settings(max_examples=examples(120))
@given(calls(), DELAYS, st.data())
def test_a_rank_that_is_suspended_for_less_than_the_timeout_is_waited_for(scripts, delays, data):
    network = Network(scripts, TIMEOUT, **delays)
    rank = data.draw(st.integers(0, len(scripts) - 1))
    network.suspend(rank, data.draw(st.floats(0, 40)), data.draw(st.floats(0, TIMEOUT - 2.5 * PERIOD))).run()
    assert [rank.error for rank in network.ranks] == [None] * len(scripts)


@settings(max_examples=examples(120))
@given(calls(), DELAYS, st.data())
def test_a_dead_rank_ends_all_and_all_name_it(scripts, delays, data):
    network = Network(scripts, TIMEOUT, **delays)
    dead = data.draw(st.integers(0, len(scripts) - 1))
    when = data.draw(st.floats(0, 40))
    network.kill(dead, when).run()
    others = [rank for rank in network.ranks if rank.number != dead]
    for rank in others:
        assert rank.ended is not None
        assert rank.ended <= max(when, network.at_work) + TIMEOUT + PERIOD
    waited = [rank for rank in others if rank.error is not None]
    event("some had to wait for it" if waited else "nobody had to wait for it")
    for rank in waited:
        assert isinstance(rank.error, PeerTimeout)
        assert rank.error.peer == dead
