"""The driver with a transport that writes everything down and moves nothing by itself."""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import numpy as np
import pytest

from ringcore import driver, wire
from ringcore.block import GenericBackend
from ringcore.driver import Journey
from ringcore.errors import PeerFailed, RingError
from ringcore.protocols import ArraySpec, Exchange, Recv, Send, Transport, Wire
from ringcore.schedule import BLOCK, WAYS, Message, Tick, schedule
from ringcore.worker import Worker
from tests.bare import BareTransport

SPEC = [ArraySpec((2,), np.float64)]


class Script(BareTransport):
    """One rank's transport: fills receives as told, keeps what is sent, and logs every call."""

    def __init__(
        self,
        rank: int = 0,
        size: int = 2,
        *,
        needs_polling: bool = False,
        arriving: Callable[[Recv], np.ndarray] | None = None,
        done: Callable[[int], bool] = lambda tests: True,
        error: Exception | None = None,
    ) -> None:
        super().__init__(None, rank, size)
        self.needs_polling = needs_polling
        self.where = "in a place of its own"
        self.arriving = arriving or (lambda recv: np.zeros(2))
        self.done, self.error = done, error
        self.log: list[Any] = []
        self.buffers: list[np.ndarray] = []
        self.testers: list[threading.Thread] = []
        self.sent: list[np.ndarray] = []

    def exchange(self, sends: list[Send], recvs: list[Recv]) -> Exchange:
        self.log.append(("post", [(s.to, s.tag) for s in sends], [(r.source, r.tag) for r in recvs]))
        self.sent += [np.array(s.buffer[:16].view(np.float64)) for s in sends]
        self.buffers += [m.buffer for m in (*sends, *recvs)]
        return _Scripted(self, recvs)

    @contextmanager
    def computing(self) -> Iterator[None]:
        self.log.append("computing")
        try:
            yield
        finally:
            self.log.append("done")

    def allgather_bytes(self, data: bytes, timeout: float) -> list[bytes]:
        raise AssertionError("the driver sends no control messages")

    def split(self, color: int, key: int) -> Transport:
        raise AssertionError


class _Scripted:
    def __init__(self, script: Script, recvs: list[Recv]) -> None:
        self.script, self.recvs, self.tests = script, recvs, 0

    def test(self) -> bool:
        self.script.log.append("test")
        self.script.testers.append(threading.current_thread())
        self.tests += 1
        return self.script.done(self.tests)

    def wait(self, timeout: float) -> None:
        self.script.log.append(("wait", timeout))
        if self.script.error is not None:
            raise self.script.error
        for recv in self.recvs:
            recv.buffer[:16] = self.script.arriving(recv).view(np.uint8)


def journey(script: Script, home: list[Any] | None = None, **changes: Any) -> Journey:
    """Blocks are two numbers; computing adds ten times this rank's number to them."""

    def compute(owner: int, block: tuple[np.ndarray]) -> tuple[np.ndarray]:
        script.log.append(("compute", owner, block[0].tolist()))
        return (block[0] + 10 * script.rank,)

    parts: dict[str, Any] = {
        "own": (np.array([script.rank, 0.5]),),
        "block_specs": lambda owner: SPEC,
        "sum_specs": lambda owner: SPEC,
        "compute": compute,
        "merge": lambda a, b: (a[0] + b[0],),
        "home": [].append if home is None else home.append,
    }
    return Journey(**{**parts, **changes})


def run(
    script: Script,
    ticks: Any,
    *,
    timeout: float = 5.0,
    backend: Any = None,
    mark: bytes = b"",
    worker: Worker | None = None,
    **changes: Any,
) -> None:
    worker = worker or Worker()  # ends with its last reference
    kernels = backend or GenericBackend()
    driver.run(journey(script, **changes), ticks, script, kernels, np.zeros(0), timeout, worker, mark)


def ticks_of(needs: Any, rank: int, way: str = "ring", with_sums: bool = False) -> tuple[Tick, ...]:
    return schedule(np.asarray(needs, bool), rank, way, with_sums=with_sums)


FULL = np.ones((3, 3), bool)


def test_everything_is_posted_before_computing_and_waited_for_after() -> None:
    script = Script(0, 3, arriving=lambda recv: np.array([recv.tag, 7.0]))
    run(script, ticks_of(FULL, 0), timeout=3.5)
    assert script.log == [
        ("post", [(1, 0)], [(2, 0)]), "computing", ("compute", 0, [0.0, 0.5]), "done", ("wait", 3.5),
        ("post", [(1, 2)], [(2, 2)]), "computing", ("compute", 2, [0.0, 7.0]), "done", ("wait", 3.5),
        ("post", [], []), "computing", ("compute", 1, [2.0, 7.0]), "done", ("wait", 3.5),
    ]  # fmt: skip


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("with_sums", [False, True])
def test_no_buffer_is_used_for_two_messages_at_a_time_nor_received_into_twice(
    way: str, with_sums: bool
) -> None:
    """A sent buffer may be sent again (direct: to others; ring: what came goes on); none is overwritten."""
    script = Script(1, 4)
    ticks = ticks_of(np.ones((4, 4)), 1, way, with_sums)
    run(script, ticks)
    received: list[int] = []
    at = 0
    for tick in ticks:
        n_sends, n = len(tick.sends), len(tick.sends) + len(tick.recvs)
        sends, recvs = script.buffers[at : at + n_sends], script.buffers[at + n_sends : at + n]
        at += n
        assert not any(np.shares_memory(a, b) for a in sends for b in recvs)
        received += [b.ctypes.data for b in recvs]
    assert len(set(received)) == len(received), "all are alive in this test, so addresses tell them apart"


@pytest.mark.parametrize("way", WAYS)
def test_a_block_is_packed_once_however_often_it_is_sent(way: str) -> None:
    packed: list[list[float]] = []
    places: list[str] = []

    class Counting(GenericBackend):
        def pack(self, arrays: Any, where: str) -> Wire:
            packed.append(np.asarray(arrays[0]).tolist())
            places.append(where)
            return wire.pack(arrays)

        def blank(self, specs: Any, where: str) -> Wire:
            places.append(where)
            return wire.blank(specs)

    run(Script(1, 4), ticks_of(np.ones((4, 4)), 1, way), backend=Counting())
    assert packed == [[1.0, 0.5]]
    assert set(places) == {"in a place of its own"}, "the transport says where it reads and writes"


def test_what_comes_goes_on_unchanged_and_sums_go_home() -> None:
    """Rank 1 of 3 with all needed: its own, then blocks 0 and 2, each with the sum that arrives."""
    home: list[Any] = []
    script = Script(1, 3, arriving=lambda recv: np.array([100.0 * recv.tag, recv.source]))
    run(script, ticks_of(FULL, 1, with_sums=True), home=home)
    assert [entry[0] for entry in script.log if entry[0] == "compute"] == ["compute"] * 3
    posts = [entry for entry in script.log if entry[0] == "post"]
    assert posts == [
        ("post", [(2, 0)], [(0, 0)]),
        ("post", [(2, 2)], [(0, 2)]),
        ("post", [(2, 5)], [(0, 5)]),  # sum of 0 goes on to 2, sum of 2 comes
        ("post", [(2, 7)], [(0, 7)]),  # sum of 2 goes home, its own comes home from 0
    ]
    assert [x.tolist() for x in script.sent] == [
        [1.0, 0.5],
        [0.0, 0.0],  # block 0, as it came: tag 0 from rank 0
        [10.0, 10.0],  # block 0 + 10
        [200.0 + 10 + 500, 0.0 + 10 + 0],  # (block 2 + 10) + the sum that came with tag 5
    ]
    assert [x[0].tolist() for x in home] == [[11.0, 10.5], [700.0, 0.0]]


def test_a_rank_that_only_passes_on_computes_nothing() -> None:
    needs = [[1, 0, 0], [0, 1, 0], [1, 0, 1]]
    home: list[Any] = []
    script = Script(1, 3, arriving=lambda recv: np.array([4.0, 2.0]))
    run(script, ticks_of(needs, 1, with_sums=True), home=home)
    assert [entry[1] for entry in script.log if entry[0] == "compute"] == [1]
    assert script.sent[0].tolist() == [4.0, 2.0]
    assert len(home) == 1, "nobody else adds to its sum"


def test_nothing_outlives_its_hop() -> None:
    """Two travelling blocks at most: the one that is here and the one that comes."""
    alive: list[weakref.ref[Any]] = []
    counts: list[int] = []

    def watched(made: Wire) -> Wire:
        alive.append(weakref.ref(made.buffer.base))
        return made

    class Watching(GenericBackend):
        def pack(self, arrays: Any, where: str) -> Wire:
            return watched(wire.pack(arrays))

        def blank(self, specs: Any, where: str) -> Wire:
            return watched(wire.blank(specs))

    def compute(owner: int, block: Any) -> None:
        counts.append(sum(ref() is not None for ref in alive))

    script = Script(0, 6)
    script.exchange = lambda sends, recvs: _Scripted(script, recvs)  # type: ignore[method-assign]
    run(script, ticks_of(np.ones((6, 6)), 0), backend=Watching(), compute=compute)
    assert len(alive) == 6, "its own block, and five that come"
    assert counts == [2, 2, 2, 2, 2, 1], "what goes and what comes; at last only what is here"


# ---------------------------------------------------------------------- polling


def test_where_data_moves_only_when_asked_the_calling_thread_asks_while_another_computes() -> None:
    computing, tested = threading.Event(), threading.Event()
    worker: list[threading.Thread] = []

    def compute(owner: int, block: Any) -> None:
        worker.append(threading.current_thread())
        computing.set()
        assert tested.wait(10), "nobody polls while this computes"

    def done(tests: int) -> bool:
        if computing.is_set() and tests > 3:
            tested.set()
        return False

    script = Script(0, 2, needs_polling=True, done=done)
    run(script, (Tick(0, sends=(Message(BLOCK, 0, 1),)),), compute=compute)
    assert set(script.testers) == {threading.main_thread()}
    assert worker[0] is not threading.main_thread()
    assert script.log[-1] == ("wait", 5.0)


def test_polling_sleeps_at_most_half_a_millisecond_and_ends_when_all_has_arrived() -> None:
    script = Script(0, 2, needs_polling=True, done=lambda tests: tests >= 5)
    run(script, (Tick(0, sends=(Message(BLOCK, 0, 1),)),), compute=lambda owner, block: time.sleep(0.2))
    assert 5 <= script.log.count("test") < 100, "others ask less often how this rank is"
    script = Script(0, 2, needs_polling=True, done=lambda tests: False)
    run(script, (Tick(0, sends=(Message(BLOCK, 0, 1),)),), compute=lambda owner, block: time.sleep(0.2))
    assert script.log.count("test") > 20, "0.2 s in steps of 0.5 ms, on however slow a machine"


def test_for_a_transport_that_moves_by_itself_the_calling_thread_computes() -> None:
    threads: list[threading.Thread] = []

    def compute(owner: int, block: Any) -> None:
        threads.append(threading.current_thread())

    script = Script(0, 2, needs_polling=False)
    run(script, (Tick(0, sends=(Message(BLOCK, 0, 1),)),), compute=compute)
    assert threads == [threading.main_thread()]
    assert script.log.count("test") == 0


def test_an_exception_of_the_computing_thread_is_raised_by_the_caller() -> None:
    def compute(owner: int, block: Any) -> None:
        raise ZeroDivisionError("in a worker")

    script = Script(0, 2, needs_polling=True, done=lambda tests: False)
    with pytest.raises(ZeroDivisionError, match="in a worker"):
        run(script, (Tick(0, sends=(Message(BLOCK, 0, 1),)),), compute=compute)


def test_the_computing_thread_has_the_callers_context() -> None:
    setting: ContextVar[str] = ContextVar("setting", default="none")
    seen: list[Any] = []
    script = Script(0, 2, needs_polling=True, done=lambda tests: False)
    token = setting.set("the caller's")
    try:
        with np.errstate(divide="raise"):
            run(
                script,
                (Tick(0, sends=(Message(BLOCK, 0, 1),)),),
                compute=lambda owner, block: seen.extend([setting.get(), np.geterr()["divide"]]),
            )
    finally:
        setting.reset(token)
    assert seen == ["the caller's", "raise"]


# ---------------------------------------------------------------------- failures


def test_the_transport_knows_the_hop_while_it_waits_and_the_call_alone_afterwards() -> None:
    told: list[str] = []

    class Told(Script):
        def exchange(self, sends: list[Send], recvs: list[Recv]) -> Exchange:
            told.append(self.status)
            return super().exchange(sends, recvs)

    script = Told(1, 3)
    script.status = "attention"
    run(script, ticks_of(FULL, 1))
    assert told == [f"attention, hop {hop} of 2" for hop in range(3)]
    assert script.status == "attention"


def test_every_message_begins_with_the_mark_and_another_one_is_refused() -> None:
    other = wire.pack([np.frombuffer(b"another.", np.uint8).copy(), np.zeros(2)]).buffer

    def fill(mark: bytes) -> Script:
        script = Script(0, 3)
        script.arriving = lambda recv: np.frombuffer(mark + bytes(8), np.float64)
        return script

    ticks = ticks_of(FULL, 0, with_sums=False)
    good = fill(b"the mark")
    run(good, ticks, mark=b"the mark")
    assert all(sent[:1].tobytes() == b"the mark" for sent in good.sent)
    assert len(other) == len(good.buffers[0])
    bad = fill(b"another.")
    with pytest.raises(
        RingError, match=r"must pass the same arguments. Those of a message from rank 2 differ"
    ):
        run(bad, ticks, mark=b"the mark")


def test_other_errors_of_the_transport_pass_through() -> None:
    with pytest.raises(PeerFailed, match="is gone"):
        run(Script(0, 3, error=PeerFailed("rank 2 is gone")), ticks_of(FULL, 0))


def test_messages_of_one_hop_have_tags_of_their_own() -> None:
    tags: set[int] = set()
    for rank in range(3):
        script = Script(rank, 3)
        run(script, ticks_of(FULL, rank, with_sums=True))
        for hop, entry in enumerate([e for e in script.log if e[0] == "post"]):
            for _, tag in entry[1]:
                assert tag // 2 == hop
                tags.add(tag)
    assert {tag % 2 for tag in tags} == {0, 1}
