"""The thread that computes: one for a ring, lasting, and gone with it."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
import time
import traceback
import weakref
from typing import Any

import numpy as np
import pytest
from ringcore_threads import solo

import ringcore as rc
from ringcore.cores import abandoned
from ringcore.protocols import Exchange, Recv, Send
from ringcore.worker import Worker
from tests.bare import BareTransport

pytestmark = pytest.mark.timeout(60)
X = np.ones((2, 3, 4))


class Polled(BareTransport):
    """Says that it moves data only when asked."""

    needs_polling = True

    def exchange(self, sends: list[Send], recvs: list[Recv]) -> Exchange:
        return self.inner.exchange(sends, recvs)  # type: ignore[no-any-return]


def compute_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "ringcore-compute"]


def ended(threads: list[threading.Thread]) -> bool:
    for thread in threads:
        thread.join(10)
    return not any(thread.is_alive() for thread in threads)


def done(worker: Worker, work: Any) -> Any:
    task = worker.begin(work)
    assert task.wait(10)
    return task.result()


@pytest.fixture(autouse=True)
def _alone() -> None:
    gc.collect()
    assert ended(compute_threads()), "a test has left one behind"


def test_a_thousand_calls_share_one_thread_which_ends_with_the_ring() -> None:
    ring = rc.Ring(Polled(solo()))
    before = threading.active_count()
    for _ in range(1000):
        rc.attention(X, X, X, ring=ring)
    (thread,) = compute_threads()
    assert threading.active_count() == before + 1
    ring.close()
    assert not compute_threads(), "it ends before close returns"
    rc.attention(X, X, X, ring=ring)  # a ring of the caller's communicator can still be used
    (another,) = compute_threads()
    assert another is not thread
    del ring
    assert ended([another]), "with the last reference, if nobody closes it"


def test_a_ring_that_needs_no_polling_has_no_thread() -> None:
    ring = rc.Ring()
    rc.attention(X, X, X, ring=ring)
    assert not compute_threads()
    ring.close()


def test_an_exception_comes_with_its_traceback_and_the_thread_goes_on() -> None:
    def fails_here() -> None:
        raise ZeroDivisionError("in a kernel")

    worker = Worker()
    with pytest.raises(ZeroDivisionError, match="in a kernel") as caught:
        done(worker, fails_here)
    assert "fails_here" in "".join(traceback.format_tb(caught.value.__traceback__))
    with pytest.raises(SystemExit):
        done(worker, lambda: exec("raise SystemExit"))
    assert done(worker, lambda: 7) == 7
    assert len(compute_threads()) == 1
    worker.close()


def test_nothing_of_the_work_is_held_afterwards() -> None:
    """Not even until the next work, nor in a cycle: a block is as large as a shard."""

    class Block:
        def __call__(self) -> Block:
            return Block()

    block, worker = Block(), Worker()
    given = weakref.ref(block)
    gc.disable()
    try:
        task = worker.begin(block)
        del block
        assert task.wait(10)
        assert given() is None
        result = task.result()
        found = weakref.ref(result)
        del result
        assert found() is None
    finally:
        gc.enable()
    worker.close()


def test_what_is_abandoned_hears_of_it_and_holds_up_nothing() -> None:
    begun, go, heard = threading.Event(), threading.Event(), threading.Event()

    def slow() -> None:
        begun.set()
        go.wait(10)
        useless = abandoned.get()
        if useless is not None and useless.is_set():
            heard.set()

    worker = Worker()
    worker.begin(slow)
    assert begun.wait(10)
    (old,) = compute_threads()
    worker.abandon()
    assert done(worker, lambda: abandoned.get().is_set()) is False  # type: ignore[union-attr]
    assert old.is_alive()
    go.set()
    assert heard.wait(10)
    assert ended([old])
    worker.close()


def test_an_interrupted_call_leaves_no_thread_behind() -> None:
    """The exception comes in the thread that polls, as Ctrl-C does."""

    class Interrupted:
        def test(self) -> bool:
            raise KeyboardInterrupt

        def wait(self, timeout: float) -> None:
            raise AssertionError

    class Slow:
        """Kernels that take longer than it takes to look."""

        def __getattr__(self, name: str) -> Any:
            from ringcore_numpy import backend

            return getattr(backend, name)

        def attend(self, *arguments: Any) -> Any:
            time.sleep(0.1)
            return self.__getattr__("attend")(*arguments)

    transport = Polled(solo())
    ring = rc.Ring(transport)
    transport.exchange = lambda sends, recvs: Interrupted()  # type: ignore[method-assign]
    slow: Any = Slow()
    slow.name = "slow"
    with pytest.raises(KeyboardInterrupt):
        rc.attention(X, X, X, ring=ring, backend=slow)
    assert ended(compute_threads()), "though the ring is still there"
    assert len(transport.given_up) == 1


FORKING = """
import os
from ringcore.worker import Worker

def done(work):
    task = worker.begin(work)
    assert task.wait(10)
    return task.result()

worker = Worker()
assert done(lambda: 4) == 4
child = os.fork()
assert done(lambda: 5) == 5
worker.close()
if child == 0:
    os._exit(0)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_forked_child_starts_a_thread_of_its_own() -> None:
    """In a process of its own: other libraries' threads may be here."""
    subprocess.run([sys.executable, "-c", FORKING], check=True, timeout=30)
