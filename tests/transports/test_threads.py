"""The thread transport: order, tags, lengths, completion, failures, and no waiting in vain."""

from __future__ import annotations

import threading
import time
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ringcore_threads import ThreadTransport, run_ranks, solo, thread_group

from ringcore.errors import PeerFailed, PeerTimeout, RingError
from ringcore.protocols import Recv, Send, Transport

pytestmark = pytest.mark.timeout(60)

SENTINEL = 0xA5
SOON = 5.0  # seconds: far below the ranks' timeout of 600, far above what a wake-up takes


def message(*key: int, length: int = 7) -> np.ndarray:
    """Bytes that tell which message this is."""
    return np.random.default_rng(key).integers(0, 256, length, dtype=np.uint8)


def room(length: int) -> np.ndarray:
    """A receive buffer and one byte more, which must survive."""
    return np.full(length + 1, SENTINEL, dtype=np.uint8)


def test_solo_is_a_transport_that_talks_to_itself() -> None:
    transport = solo()
    assert isinstance(transport, Transport)
    assert (transport.rank, transport.size, transport.needs_polling) == (0, 1, False)
    got = room(7)
    exchange = transport.exchange([Send(message(1), 0, 3)], [Recv(got[:-1], 0, 3)])
    assert exchange.test()
    exchange.wait(1.0)
    assert np.array_equal(got[:-1], message(1))
    assert got[-1] == SENTINEL
    assert transport.allgather_bytes(b"x", 1.0) == [b"x"]
    assert (transport.traffic.messages, transport.traffic.bytes, transport.traffic.control_bytes) == (1, 7, 0)


@pytest.mark.parametrize("ranks", range(1, 9))
def test_everybody_to_everybody(ranks: int) -> None:
    def fn(transport: ThreadTransport) -> None:
        me, size = transport.rank, transport.size
        rooms = [room(source + 1) for source in range(size)]
        sends = [Send(message(me, to, length=me + 1), to, 0) for to in range(size)]
        transport.exchange(sends, [Recv(r[:-1], s, 0) for s, r in enumerate(rooms)]).wait(SOON)
        for source, got in enumerate(rooms):
            assert np.array_equal(got[:-1], message(source, me, length=source + 1))
            assert got[-1] == SENTINEL
        assert transport.traffic.messages == size
        assert transport.traffic.by_peer == dict.fromkeys(range(size), me + 1)
        assert transport.traffic.bytes == size * (me + 1)

    run_ranks(ranks, lambda ring: fn(ring.transport))


MESSAGES = st.integers(1, 5).flatmap(
    lambda ranks: st.tuples(
        st.just(ranks),
        st.lists(
            st.tuples(
                st.integers(0, ranks - 1),
                st.integers(0, ranks - 1),
                st.integers(0, 1),
                st.sampled_from((0, 1, 9)),
            ),
            max_size=25,
        ),
        st.randoms(use_true_random=False),
    )
)


@given(MESSAGES)
def test_messages_with_the_same_ends_and_tag_keep_their_order(case: tuple) -> None:
    ranks, plan, random = case
    numbered = list(enumerate(plan))
    # Each rank posts in an order of its own; only the order within (source, to, tag) is kept, on both sides.
    orders = [sorted(numbered, key=lambda _: random.random()) for _ in range(ranks)]
    queue = {key: [m for m in numbered if m[1][:3] == key] for key in {m[1][:3] for m in numbered}}

    def fn(transport: ThreadTransport) -> int:
        me, exchanges, rooms, next_of = transport.rank, [], [], dict.fromkeys(queue, 0)
        ends = [(kind, m[1][:3]) for m in orders[me] for kind in (0, 1) if m[1][kind] == me]
        taken = {0: dict(next_of), 1: dict(next_of)}
        for kind, key in ends:
            number, (source, to, tag, length) = queue[key][taken[kind][key]]
            taken[kind][key] += 1
            if kind == 0:
                exchanges.append(transport.exchange([Send(message(number, length=length), to, tag)], []))
            else:
                got = room(length)
                rooms.append((number, length, got))
                exchanges.append(transport.exchange([], [Recv(got[:-1], source, tag)]))
        for exchange in exchanges:
            exchange.wait(SOON)
        for number, length, got in rooms:
            assert np.array_equal(got[:-1], message(number, length=length))
            assert got[-1] == SENTINEL
        return len(rooms)

    assert sum(run_ranks(ranks, lambda ring: fn(ring.transport))) == len(plan)


def test_a_send_is_complete_only_when_it_has_been_copied() -> None:
    first, second = thread_group(2)
    data, got = message(1), room(7)
    sent = first.exchange([Send(data, 1, 0)], [])
    assert not sent.test()
    data[0] ^= 0xFF  # nothing was buffered: the receiver reads the sender's memory
    received = second.exchange([], [Recv(got[:-1], 0, 0)])
    assert sent.test()
    assert received.test()
    assert np.array_equal(got[:-1], data)


def test_messages_move_without_test_or_wait() -> None:
    first, second = thread_group(2)
    got = room(7)
    first.exchange([], [Recv(got[:-1], 1, 0)])
    second.exchange([Send(message(1), 0, 0)], [])
    assert np.array_equal(got[:-1], message(1))


def test_no_third_copy() -> None:
    first, second = thread_group(2)
    data, got = np.ones(1 << 22, dtype=np.uint8), np.zeros(1 << 22, dtype=np.uint8)
    tracemalloc.start()
    try:
        sent = first.exchange([Send(data, 1, 0)], [])
        second.exchange([], [Recv(got, 0, 0)]).wait(SOON)
        sent.wait(SOON)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert got.all()
    assert peak < 100_000


def test_tags_and_sources_are_told_apart() -> None:
    a, b, c = thread_group(3)
    rooms = [room(7) for _ in range(3)]
    recvs = [Recv(rooms[0][:-1], 0, 1), Recv(rooms[1][:-1], 1, 0), Recv(rooms[2][:-1], 0, 0)]
    received = c.exchange([], recvs)
    a.exchange([Send(message(0, 0), 2, 0), Send(message(0, 1), 2, 1)], [])
    assert not received.test()
    b.exchange([Send(message(1, 0), 2, 0)], [])
    received.wait(SOON)
    for got, key in zip(rooms, [(0, 1), (1, 0), (0, 0)], strict=True):
        assert np.array_equal(got[:-1], message(*key))


def test_a_read_only_buffer_can_be_sent() -> None:
    data, got = message(1), room(7)
    data.flags.writeable = False
    solo().exchange([Send(data, 0, 0)], [Recv(got[:-1], 0, 0)]).wait(SOON)
    assert np.array_equal(got[:-1], data)


def test_lengths_that_differ_are_an_error_on_both_sides_and_the_next_message_is_fine() -> None:
    first, second = thread_group(2)
    got = room(5)
    sent = first.exchange([Send(message(1), 1, 0)], [])
    received = second.exchange([], [Recv(got[:-1], 0, 0)])
    for exchange in (sent, received):
        for call in (exchange.test, lambda exchange=exchange: exchange.wait(SOON)):
            with pytest.raises(RingError, match=r"length of its send.*7 bytes.*rank 0.*5 bytes.*rank 1"):
                call()
    assert (got == SENTINEL).all()
    first.exchange([Send(message(2, length=5), 1, 0)], [])
    second.exchange([], [Recv(got[:-1], 0, 0)]).wait(SOON)
    assert np.array_equal(got[:-1], message(2, length=5))


READ_ONLY = np.zeros(4, np.uint8)
READ_ONLY.flags.writeable = False


@pytest.mark.parametrize(
    ("sends", "recvs", "text"),
    [
        ([Send(np.zeros(4), 0, 0)], [], r"flat uint8.*Got ndarray float64 \(4,\)"),
        ([Send(np.zeros((2, 2), np.uint8), 0, 0)], [], r"flat uint8.*Got ndarray uint8 \(2, 2\)"),
        ([Send(b"1234", 0, 0)], [], "flat uint8.*Got bytes"),
        ([Send(np.zeros(8, np.uint8)[::2], 0, 0)], [], r"contiguous.*strides \(2,\)"),
        ([], [Recv(READ_ONLY, 0, 0)], "writable.*False for a receive"),
        ([Send(np.zeros(4, np.uint8), 1, 0)], [], r"rank must be in \[0, 1\). Got 1 for a send"),
        ([], [Recv(np.zeros(4, np.uint8), -1, 0)], r"rank must be in \[0, 1\). Got -1 for a receive"),
    ],
)
def test_wrong_buffers_and_ranks(sends: list, recvs: list, text: str) -> None:
    transport = solo()
    with pytest.raises(ValueError, match=text):
        transport.exchange(sends, recvs)
    assert transport.traffic.messages == 0


def test_timeout_names_the_rank_and_a_late_peer_is_still_heard() -> None:
    group = thread_group(3)
    got = room(7)
    received = group[0].exchange([], [Recv(got[:-1], 2, 9)])
    start = time.monotonic()
    with pytest.raises(
        PeerTimeout, match=r"rank 0 of 3 has waited 0.1 s .* for rank 2 of 3 .*does not answer"
    ) as info:
        received.wait(0.1)
    assert 0.1 <= time.monotonic() - start < SOON
    assert info.value.peer == 2
    group[2].exchange([Send(message(1), 0, 9)], [])
    received.wait(0.0)
    assert np.array_equal(got[:-1], message(1))


def test_a_rank_that_computes_is_not_taken_for_dead_nor_is_one_that_waits_for_it() -> None:
    """Rank 0 computes for longer than the timeout; 1 waits for 0, 2 for 1."""

    def fn(transport: ThreadTransport) -> int:
        me, got = transport.rank, room(7)
        if me == 0:
            with transport.computing():
                time.sleep(1.0)
        else:
            transport.exchange([], [Recv(got[:-1], me - 1, 0)]).wait(0.2)
        if me < 2:
            transport.exchange([Send(message(me), me + 1, 0)], []).wait(SOON)
        return int(got[0])

    assert run_ranks(3, lambda ring: fn(ring.transport)) == [SENTINEL, message(0)[0], message(1)[0]]


def test_ranks_that_wait_for_each_other_time_out() -> None:
    def fn(transport: ThreadTransport) -> None:
        transport.exchange([], [Recv(room(7)[:-1], 1 - transport.rank, 0)]).wait(0.2)

    with pytest.raises(PeerTimeout):
        run_ranks(2, lambda ring: fn(ring.transport))


def test_allgather_timeout_names_the_first_missing_rank() -> None:
    group = thread_group(3)
    threading.Thread(target=group[1].allgather_bytes, args=(b"", SOON), daemon=True).start()
    with pytest.raises(PeerTimeout, match="rank 2 of 3") as info:
        group[0].allgather_bytes(b"", 0.3)
    assert info.value.peer == 2
    group[2].allgather_bytes(b"", SOON)


@pytest.mark.parametrize("ranks", [1, 2, 5, 8])
def test_allgather_many_times(ranks: int) -> None:
    def fn(transport: ThreadTransport) -> None:
        for turn in range(50):
            notes = transport.allgather_bytes(b"%d-%d" % (transport.rank, turn), SOON)
            assert notes == [b"%d-%d" % (rank, turn) for rank in range(ranks)]
        assert transport.traffic.control_bytes == (10 * 3 + 40 * 4) * (ranks - 1)
        assert transport.traffic.messages == 0

    run_ranks(ranks, lambda ring: fn(ring.transport))


def test_waiting_costs_no_cpu() -> None:
    transport = thread_group(2)[0]
    start = time.thread_time()
    with pytest.raises(PeerTimeout):
        transport.exchange([], [Recv(room(0), 1, 0)]).wait(0.5)
    assert time.thread_time() - start < 0.1


def test_split_by_color_and_key() -> None:
    def fn(transport: ThreadTransport) -> tuple:
        part = transport.split(color=transport.rank % 2, key=-transport.rank, timeout=60.0)
        return part.rank, part.size, part.allgather_bytes(b"%d" % transport.rank, SOON)

    even, odd = [b"4", b"2", b"0"], [b"3", b"1"]
    assert run_ranks(5, lambda ring: fn(ring.transport)) == [
        (2, 3, even), (1, 2, odd), (1, 3, even), (0, 2, odd), (0, 3, even),
    ]  # fmt: skip


def test_split_groups_do_not_hear_each_other_and_count_for_themselves() -> None:
    def fn(transport: ThreadTransport) -> None:
        part, same = transport.split(0, 0, 60.0), transport.split(0, 0, 60.0).split(0, 0, 60.0)
        rooms = [room(7) for _ in range(3)]
        exchanges = [
            t.exchange([], [Recv(got[:-1], 1 - t.rank, 0)])
            for t, got in zip((transport, part, same), rooms, strict=True)
        ]
        for number, t in ((2, same), (0, transport), (1, part)):
            t.exchange([Send(message(number), 1 - t.rank, 0)], [])
        for number, exchange in enumerate(exchanges):
            exchange.wait(SOON)
            assert np.array_equal(rooms[number][:-1], message(number))
        assert part.traffic.messages == transport.traffic.messages == 1

    run_ranks(2, lambda ring: fn(ring.transport))


def test_what_was_sent_before_a_failure_still_arrives() -> None:
    seen = []

    def fn(transport: ThreadTransport) -> None:
        if transport.rank == 0:
            transport.exchange([Send(message(1), 1, 0)], [])
            raise KeyError("rank 0")
        time.sleep(0.1)
        got = room(7)
        transport.exchange([], [Recv(got[:-1], 0, 0)]).wait(SOON)
        seen.append(np.array_equal(got[:-1], message(1)))
        transport.exchange([], [Recv(got[:-1], 0, 0)]).wait(SOON)

    with pytest.raises(KeyError, match="rank 0"):
        run_ranks(2, lambda ring: fn(ring.transport))
    assert seen == [True]


def test_a_message_that_is_being_copied_completes_although_a_rank_fails(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first, second = thread_group(2)
    copy, got = ThreadTransport._copy, room(7)
    received = second.exchange([], [Recv(got[:-1], 0, 0)])

    def copy_after_failure(transport: ThreadTransport, pair: object) -> None:
        transport._group.world.fail("somebody has failed")
        assert not received.test()
        copy(transport, pair)

    monkeypatch.setattr(ThreadTransport, "_copy", copy_after_failure)
    first.exchange([Send(message(1), 1, 0)], []).wait(SOON)
    received.wait(SOON)
    assert np.array_equal(got[:-1], message(1))
    with pytest.raises(PeerFailed, match="somebody has failed"):
        first.exchange([Send(message(1), 1, 0)], []).wait(SOON)


def wait_in_exchange(transport: ThreadTransport, peer: int) -> None:
    transport.exchange([], [Recv(room(0), peer, 0)]).wait(600.0)


def wait_in_send(transport: ThreadTransport, peer: int) -> None:
    transport.exchange([Send(room(0), peer, 0)], []).wait(600.0)


def wait_in_test(transport: ThreadTransport, peer: int) -> None:
    exchange = transport.exchange([], [Recv(room(0), peer, 0)])
    while not exchange.test():
        time.sleep(0.001)


def wait_in_allgather(transport: ThreadTransport, peer: int) -> None:
    transport.allgather_bytes(b"", 600.0)


def wait_in_part(transport: ThreadTransport, peer: int) -> None:
    transport.exchange([], [Recv(room(0), (transport.rank + 1) % transport.size, 0)]).wait(600.0)


WAITS = [wait_in_exchange, wait_in_send, wait_in_test, wait_in_allgather, wait_in_part]


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("wait", WAITS)
def test_a_failure_ends_every_kind_of_wait_at_once(wait, late: bool) -> None:
    """Also in groups that do not have the failed rank, before and after the wait has begun."""
    seen = {}

    def fn(transport: ThreadTransport) -> None:
        rank = transport.rank
        part = transport.split(color=min(rank, 1), key=0, timeout=60.0) if wait is wait_in_part else transport
        if rank == 0:
            time.sleep(0.1 * (not late))
            raise ZeroDivisionError
        time.sleep(0.1 * late)
        try:
            wait(part, 0)
        except PeerFailed as error:
            seen[rank] = str(error)
            raise

    start = time.monotonic()
    with pytest.raises(ZeroDivisionError):
        run_ranks(4, lambda ring: fn(ring.transport))
    assert time.monotonic() - start < SOON
    assert sorted(seen) == [1, 2, 3]
    # In the race of the failures the first one is told; the others are told about that one.
    assert all("has raised" in text for text in seen.values())
    assert any("rank 0 of 4 has raised ZeroDivisionError" in text for text in seen.values())


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("wait", WAITS[:4])
def test_a_rank_that_has_returned_is_not_waited_for(wait, late: bool) -> None:
    def fn(transport: ThreadTransport) -> None:
        if transport.rank == 2:
            time.sleep(0.1 * (not late))
            return
        time.sleep(0.1 * late)
        wait(transport, 2)

    start = time.monotonic()
    with pytest.raises(
        PeerFailed, match=r"(?i)rank 2 of 3 has returned while rank \d of 3 still waits"
    ) as info:
        run_ranks(3, lambda ring: fn(ring.transport))
    assert time.monotonic() - start < SOON
    assert info.value.__notes__[0].startswith("on rank ")


def test_a_rank_that_has_returned_does_not_disturb_the_others() -> None:
    def fn(transport: ThreadTransport) -> None:
        if transport.rank == 0:
            transport.exchange([Send(message(0), 1, 0)], [])
            return
        time.sleep(0.1)
        got, peer = room(7), 3 - transport.rank
        transport.exchange([Send(message(1), peer, 1)], [Recv(got[:-1], peer, 1)]).wait(SOON)
        if transport.rank == 1:
            transport.exchange([], [Recv(got[:-1], 0, 0)]).wait(SOON)
            assert np.array_equal(got[:-1], message(0))

    run_ranks(3, lambda ring: fn(ring.transport))


@settings(max_examples=20)
@given(st.integers(2, 6), st.integers(0, 10_000))
def test_no_lost_wake_up_in_long_chains(ranks: int, seed: int) -> None:
    """A token goes round a ring many times; every hop sleeps and is woken."""

    def fn(transport: ThreadTransport) -> int:
        me, size = transport.rank, transport.size
        token = np.zeros(8, np.uint8)
        for turn in range(50):
            if me or turn:
                transport.exchange([], [Recv(token, (me - 1) % size, 0)]).wait(SOON)
            token[me] += 1
            transport.exchange([Send(token, (me + 1) % size, 0)], []).wait(
                SOON
            ) if me < size - 1 or turn < 49 else 0
        return int(token[: me + 1].sum())

    assert run_ranks(ranks, lambda ring: fn(ring.transport))[-1] == 50 * ranks
