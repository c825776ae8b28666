"""Contract, line 8, over processes: our messages write their own bytes only, and the caller sees none."""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest
from mpi4py import MPI

import ringcore as rc
from ringcore.collectives import alltoall
from ringcore.protocols import Recv, Send
from ringcore.testing import Call, DrawnMask, Problem, solve_on
from tests.mpi.together import P, bits, gathered, several

GUARD = 64
SENTINEL = 0xA5

PROBLEM = Problem(
    xp=np,
    q_layout=rc.Layout.zigzag(length=40, ranks=P),
    mask=DrawnMask(Call("causal")),
    heads=(2, 1),
    D=8,
    E=8,
)


def guarded(nbytes, fill=SENTINEL):
    """A buffer in the middle of a larger one."""
    memory = np.full(nbytes + 2 * GUARD, fill, np.uint8)
    return memory, memory[GUARD : GUARD + nbytes]


@pytest.mark.parametrize("nbytes", [0, 1, 7, 4096, 300_000])
def test_line_08_a_receive_writes_its_own_bytes_only(ring, nbytes):
    """From and to every rank, two messages each: short ones, which MPI buffers, and long ones."""
    receives, sends = [], []
    for peer in range(P):
        for tag in range(2):
            receives.append((peer, tag, *guarded(nbytes)))
            memory, payload = guarded(nbytes)
            payload[:] = 16 * ring.rank + tag
            sends.append((peer, tag, memory, payload))
    before = [memory.copy() for *_, memory, _ in sends]
    ring.transport.exchange(
        [Send(payload, peer, tag) for peer, tag, _, payload in sends],
        [Recv(view, peer, tag) for peer, tag, _, view in receives],
    ).wait(ring.timeout)
    for peer, tag, memory, view in receives:
        assert np.all(view == 16 * peer + tag), f"the message of rank {peer}"
        assert np.all(memory[:GUARD] == SENTINEL)
        assert np.all(memory[GUARD + nbytes :] == SENTINEL)
    assert all(np.array_equal(memory, kept) for (*_, memory, _), kept in zip(sends, before, strict=True))


def test_line_08_every_receive_of_a_call_keeps_its_sentinels(ring, monkeypatch):
    """The same in attention itself: what it receives into is put in the middle of a larger buffer."""
    transport, post, checked = type(ring.transport), type(ring.transport).exchange, []

    def exchange(self, sends, recvs):
        held = [(recv.buffer, *guarded(recv.buffer.shape[0])) for recv in recvs]
        moved = post(
            self, sends, [r._replace(buffer=view) for r, (_, _, view) in zip(recvs, held, strict=True)]
        )
        return Checked(moved, held)

    class Checked:
        def __init__(self, inner, held):
            self.inner, self.held = inner, held

        def test(self):
            return self.inner.test() and self.done()

        def wait(self, timeout):
            self.inner.wait(timeout)
            self.done()

        def done(self):
            for buffer, memory, view in self.held:
                buffer[:] = view
                assert np.all(memory[:GUARD] == SENTINEL)
                assert np.all(memory[GUARD + view.shape[0] :] == SENTINEL)
                checked.append(view.shape[0])
            self.held = []
            return True

    want = [bits(x) for x in solve_on(ring, PROBLEM)]
    monkeypatch.setattr(transport, "exchange", exchange)
    assert [bits(x) for x in solve_on(ring, PROBLEM)] == want
    assert P == 1 or sum(checked) > 0


def test_line_08_inputs_that_cannot_be_written_to_are_enough(ring):
    given = PROBLEM.shards(ring.rank)
    for x in given:
        x.flags.writeable = False
    before = [bits(x) for x in given]
    _, pullback = rc.attention_vjp(*given[:3], ring=ring, return_lse=True, **PROBLEM.options(ring.rank))
    pullback(given.dout, given.dlse)
    whole = ring.gather(given.q, PROBLEM.q_layout)
    ring.allreduce(PROBLEM.v)
    rc.reshard(given.k, ring, PROBLEM.k_layout, rc.Layout.contiguous(length=40, ranks=P))
    ring.scatter(whole, PROBLEM.q_layout)
    assert [bits(x) for x in given] == before


def completed(request, status=None):
    """Wait for a request of the caller's; a message that has been taken away must not make a test hang."""
    until = time.monotonic() + 10
    while not request.Test(status):
        assert time.monotonic() < until, "a message of the caller's has got lost"
        time.sleep(0.0005)


def calls(ring):
    """One of each kind, with messages between all ranks."""
    results = list(solve_on(ring, PROBLEM))
    results.append(ring.allreduce(np.arange(50.0) * ring.rank))
    results += alltoall([np.full(3, ring.rank) for _ in range(P)], ring)
    return [bits(x) for x in results]


def test_line_08_a_sum_of_the_callers_own_in_flight_is_undisturbed(ring):
    """Begun before our calls and completed after them, on the communicator that the ring was made of."""
    want = calls(ring)
    for n in range(3):
        mine, total = np.arange(10_000.0) + ring.rank, np.zeros(10_000)
        request = MPI.COMM_WORLD.Iallreduce(mine, total)
        assert calls(ring) == want
        assert MPI.COMM_WORLD.allreduce(n) == n * P  # and a blocking one, with the other still in flight
        completed(request)
        assert np.array_equal(total, P * np.arange(10_000.0) + P * (P - 1) / 2)


def test_line_08_the_caller_sees_none_of_our_messages(ring):
    """A receive from anybody with any tag waits through all our calls; then it gets the caller's message."""
    inbox = np.zeros(1, np.int64)
    request = MPI.COMM_WORLD.Irecv(inbox, MPI.ANY_SOURCE, MPI.ANY_TAG)
    calls(ring)
    assert not request.Test(), "a receive of the caller has got one of our messages"
    ring.allreduce(np.zeros(1))  # nobody sends before all have looked
    sent = MPI.COMM_WORLD.Isend(np.array([100 + ring.rank]), (ring.rank + 1) % P, tag=7)
    status = MPI.Status()
    completed(request, status)
    completed(sent)
    assert inbox[0] == 100 + (ring.rank - 1) % P
    assert (status.Get_source(), status.Get_tag()) == ((ring.rank - 1) % P, 7)


def test_line_08_nothing_can_be_probed_by_the_caller_while_we_communicate(ring):
    """Another thread looks all the time."""
    if MPI.Query_thread() < MPI.THREAD_MULTIPLE:
        pytest.skip("MPI without MPI_THREAD_MULTIPLE")
    seen, looks, over = [], [0], threading.Event()

    def look():
        while not over.is_set():
            looks[0] += 1
            if MPI.COMM_WORLD.Iprobe(MPI.ANY_SOURCE, MPI.ANY_TAG):
                seen.append(True)
            time.sleep(0.0002)

    spy = threading.Thread(target=look)
    spy.start()
    try:
        for _ in range(5):
            calls(ring)
    finally:
        over.set()
        spy.join()
    assert looks[0] > 10
    assert not seen


@several
def test_line_08_the_callers_messages_do_not_reach_us(ring):
    """Under way to every rank before our calls, with tags such as ours."""
    want = calls(ring)
    requests = [
        MPI.COMM_WORLD.Isend(np.full(100, -1.0), peer, tag)
        for peer in range(P)
        for tag in (0, 1, 2**14, 2**14 + 1)
        if peer != ring.rank
    ]
    assert calls(ring) == want
    for _ in range(len(requests)):
        inbox = np.zeros(100)
        completed(MPI.COMM_WORLD.Irecv(inbox, MPI.ANY_SOURCE, MPI.ANY_TAG))
        assert np.all(inbox == -1.0)
    for request in requests:
        completed(request)


def test_line_08_the_callers_communicator_is_as_it_was(ring):
    """Its error handler, its name, its group; our duplicate is made once and found again."""
    comm = MPI.COMM_WORLD.Dup()
    before = (comm.Get_errhandler(), comm.Get_name(), comm.Get_size(), comm.Get_rank())
    first = rc.Ring(comm, timeout=20)
    calls(first)
    assert rc.Ring(comm).transport is first.transport
    assert (comm.Get_errhandler(), comm.Get_name(), comm.Get_size(), comm.Get_rank()) == before
    assert all(gathered(ring, True))
    comm.Free()
