"""``Ring(check="once")``: whatever ranks remember, valid calls give the same bits as when all is compared."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ringcore as rc
from ringcore.errors import PeerFailed, RingError
from tests.profiles import examples

pytestmark = pytest.mark.timeout(120)

MASKS = [rc.full(), rc.causal(), rc.window(1, 1), rc.window(0, 0) & rc.keys(2, 5), rc.keys(3, 4)]


@st.composite
def calls(draw: st.DrawFn) -> tuple[int, list[tuple[tuple[int, ...], bool, int, int]]]:
    """A number of ranks, and calls in a row: lengths, with a layout or not, mask, which gradient."""
    ranks = draw(st.integers(2, 4))
    lengths = st.lists(st.integers(0, 4), min_size=ranks, max_size=ranks).map(tuple)
    few = draw(st.lists(lengths, min_size=1, max_size=3))
    call = st.tuples(st.sampled_from(few), st.booleans(), st.integers(0, len(MASKS) - 1), st.integers(0, 2))
    return ranks, draw(st.lists(call, min_size=2, max_size=8))


def results(ring: rc.Ring, sequence: Any) -> list[bytes]:
    found = []
    for lengths, with_layout, mask, wrt in sequence:
        rng = np.random.default_rng(ring.rank)
        q, k, v = rng.standard_normal((3, 2, lengths[ring.rank], 3))
        layout = rc.Layout.from_lengths(lengths) if with_layout else None
        out, pullback = rc.attention_vjp(q, k, v, ring=ring, layout=layout, mask=MASKS[mask])
        found.append(out.tobytes() + pullback(out, wrt=("qkv"[wrt],))[0].tobytes())
    return found


@settings(max_examples=examples(150))
@given(calls())
def test_any_sequence_of_valid_calls_gives_the_same_bits(case: Any) -> None:
    ranks, sequence = case

    def on_rank(ring: rc.Ring) -> bool:
        once = rc.Ring(ring.transport, timeout=20, check="once")
        return results(once, sequence) == results(ring, sequence)

    assert all(rc.run_ranks(ranks, on_rank, timeout=20))


def test_a_call_like_an_earlier_one_sends_no_control_message() -> None:
    layout = rc.Layout.contiguous(length=7, ranks=2)

    def on_rank(ring: rc.Ring) -> list[int]:
        once, sent = rc.Ring(ring.transport, check="once"), []
        x = np.ones((layout.count(ring.rank), 2))
        for scale in (1.0, 1.0, 2.0, 1.0, 2.0):
            before = ring.traffic.control_bytes
            rc.attention(x, x, x, ring=once, layout=layout, scale=scale)
            sent.append(ring.traffic.control_bytes - before)
        return sent

    for sent in rc.run_ranks(2, on_rank):
        assert [count > 0 for count in sent] == [True, False, True, False, False]


def test_a_difference_among_remembered_arguments_raises_on_every_rank() -> None:
    layout = rc.Layout.contiguous(length=7, ranks=3)

    def on_rank(ring: rc.Ring) -> None:
        once = rc.Ring(ring.transport, timeout=5, check="once")
        x = np.ones((layout.count(ring.rank), 2))
        for scale in (1.0, 2.0):
            rc.attention(x, x, x, ring=once, layout=layout, scale=scale)
        with pytest.raises((RingError, PeerFailed)) as caught:
            rc.attention(x, x, x, ring=once, layout=layout, scale=1.0 if ring.rank else 2.0)
        raise caught.value  # only now may this rank end the others

    with pytest.raises(RingError, match="all ranks must pass the same arguments"):
        rc.run_ranks(3, on_rank, timeout=5)


def test_ranks_that_check_differently_are_told() -> None:
    def on_rank(ring: rc.Ring) -> None:
        other = rc.Ring(ring.transport, check="once" if ring.rank else "always")
        x = np.ones((3, 2))
        rc.attention(x, x, x, ring=other)

    with pytest.raises(ValueError, match=r"must pass the same check. Rank 0 passed always, rank 1 once"):
        rc.run_ranks(2, on_rank)
