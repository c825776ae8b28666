"""`run_ranks`: results, exceptions, interrupts, and what of the caller holds on the ranks."""

from __future__ import annotations

import contextlib
import contextvars
import gc
import signal
import threading
import time
import weakref

import hypothesis
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from ringcore_threads import run_ranks

import ringcore as rc
from ringcore.errors import PeerFailed, PeerTimeout
from ringcore.protocols import Recv

pytestmark = pytest.mark.timeout(60)

SOON = 5.0


class Odd(BaseException):
    """Neither an Exception nor an interrupt."""


@pytest.mark.parametrize("ranks", range(1, 9))
def test_results_are_in_rank_order_and_arguments_are_shared(ranks: int) -> None:
    shared = object()
    got = rc.run_ranks(ranks, lambda ring, a, b: (ring.rank, ring.size, a is shared, b), shared, 2)
    assert got == [(rank, ranks, True, 2) for rank in range(ranks)]


def test_ranks_are_rings_with_the_timeout_asked_for() -> None:
    rings = rc.run_ranks(2, lambda ring: ring, timeout=3.5)
    assert all(isinstance(ring, rc.Ring) and ring.timeout == 3.5 for ring in rings)


def test_timeout_of_a_silent_rank_is_raised_with_the_rank_it_waited_for() -> None:
    def fn(ring: rc.Ring) -> None:
        if ring.rank == 0:
            ring.transport.allgather_bytes(b"", ring.timeout)
        else:
            time.sleep(0.4)

    with pytest.raises(PeerTimeout) as info:
        rc.run_ranks(2, fn, timeout=0.1)
    assert info.value.peer == 1
    assert info.value.__notes__ == ["on rank 0 of 2"]


@pytest.mark.parametrize("ranks", [0, -1])
def test_too_few_ranks(ranks: int) -> None:
    with pytest.raises(ValueError, match=f"ranks must be at least 1. Got {ranks}"):
        run_ranks(ranks, lambda ring: None)


def test_ranks_must_be_whole() -> None:
    with pytest.raises(TypeError):
        run_ranks(2.0, lambda ring: None)


@pytest.mark.parametrize(
    "kind",
    [ValueError, AssertionError, StopIteration, Odd, KeyboardInterrupt, SystemExit, GeneratorExit,
     hypothesis.errors.UnsatisfiedAssumption, pytest.skip.Exception],
)  # fmt: skip
@pytest.mark.parametrize(("ranks", "culprit"), [(1, 0), (2, 0), (4, 3)])
def test_the_exception_itself_is_raised_and_its_rank_is_named(kind: type, ranks: int, culprit: int) -> None:
    error = kind("the cause")

    def fn(ring: rc.Ring) -> None:
        if ring.rank == culprit:
            raise error
        ring.transport.allgather_bytes(b"", ring.timeout)

    start = time.monotonic()
    with pytest.raises(kind) as info:
        run_ranks(ranks, fn)
    assert time.monotonic() - start < SOON
    assert info.value is error
    assert error.__notes__ == [f"on rank {culprit} of {ranks}"]
    assert "fn" in [entry.name for entry in info.traceback]


def test_of_several_exceptions_the_lowest_rank_wins_whatever_came_first() -> None:
    def fn(ring: rc.Ring) -> None:
        time.sleep(0.05 * (4 - ring.rank))
        raise LookupError(ring.rank)

    with pytest.raises(LookupError) as info:
        run_ranks(4, fn)
    assert info.value.args == (0,)


def test_the_consequence_of_another_rank_is_not_mistaken_for_the_cause() -> None:
    def fn(ring: rc.Ring) -> None:
        if ring.rank == 2:
            raise LookupError("cause")
        try:
            ring.transport.allgather_bytes(b"", ring.timeout)
        except PeerFailed as error:
            if ring.rank == 0:
                raise RuntimeError("chained") from error
            raise RuntimeError("while handling")  # noqa: B904 - the context alone must do

    with pytest.raises(LookupError, match="cause") as info:
        run_ranks(3, fn)
    assert info.value.__notes__ == ["on rank 2 of 3"]


def test_ranks_that_raise_together_all_see_their_own_error() -> None:
    seen = []

    def fn(ring: rc.Ring) -> None:
        ring.transport.allgather_bytes(b"wrong", ring.timeout)
        try:
            raise ValueError("all")
        except ValueError as error:
            seen.append(error)
            raise

    for _ in range(20):
        with pytest.raises(ValueError, match="all"):
            run_ranks(4, fn)
    assert len(seen) == 80


def test_a_peer_failure_that_is_caught_is_no_failure_of_that_rank() -> None:
    def fn(ring: rc.Ring) -> None:
        if ring.rank == 1:
            raise Odd
        with contextlib.suppress(PeerFailed):
            ring.transport.allgather_bytes(b"", ring.timeout)

    with pytest.raises(Odd):
        run_ranks(3, fn)


def test_an_error_in_the_ring_options_is_raised() -> None:
    with pytest.raises(ValueError, match="timeout must be"):
        run_ranks(2, lambda ring: None, timeout=-1.0)


def test_interrupting_the_caller_ends_all_ranks() -> None:
    ended = []

    def fn(ring: rc.Ring) -> None:
        ring.transport.allgather_bytes(b"", SOON)  # all have started
        if ring.rank == 0:
            time.sleep(0.1)
            signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
        try:
            ring.transport.split(0, 0, 60.0).split(ring.rank, 0, 60.0)
            ring.transport.exchange([], [Recv(np.zeros(1, np.uint8), ring.rank, 0)]).wait(600.0)
        except PeerFailed as error:
            ended.append(str(error))

    start = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        run_ranks(3, fn)
    assert time.monotonic() - start < SOON
    assert len(ended) == 3
    assert all("the caller of run_ranks has raised KeyboardInterrupt" in text for text in ended)


def test_an_interrupted_caller_does_not_wait_for_ranks_that_compute() -> None:
    release = threading.Event()

    def fn(ring: rc.Ring) -> None:
        if ring.rank == 0:
            signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
        release.wait(30.0)

    start = time.monotonic()
    try:
        with pytest.raises(KeyboardInterrupt):
            run_ranks(2, fn)
        assert time.monotonic() - start < SOON
    finally:
        release.set()


def test_one_rank_runs_in_the_calling_thread_and_more_do_not() -> None:
    here = threading.get_ident()
    assert run_ranks(1, lambda ring: threading.get_ident()) == [here]
    idents = run_ranks(3, lambda ring: (ring.transport.allgather_bytes(b"", SOON), threading.get_ident())[1])
    assert len({here, *idents}) == 4


@pytest.mark.parametrize("ranks", [1, 3])
def test_context_variables_hold_on_the_ranks_and_do_not_leak_back(ranks: int) -> None:
    variable = contextvars.ContextVar("variable", default="default")
    variable.set("caller's")

    def fn(ring: rc.Ring) -> str:
        before = variable.get()
        variable.set(f"rank {ring.rank}")
        ring.transport.allgather_bytes(b"", SOON)
        return before + ", " + variable.get()

    assert run_ranks(ranks, fn) == [f"caller's, rank {rank}" for rank in range(ranks)]
    assert variable.get() == "caller's"


@pytest.mark.parametrize("ranks", [1, 2])
def test_numpy_errstate_holds_on_the_ranks(ranks: int) -> None:
    def fn(ring: rc.Ring) -> None:
        np.ones(1) / np.zeros(1)

    with np.errstate(divide="raise"), pytest.raises(FloatingPointError):
        run_ranks(ranks, fn)
    with np.errstate(divide="ignore"):
        run_ranks(ranks, fn)


def test_run_ranks_inside_run_ranks() -> None:
    def fn(ring: rc.Ring) -> list:
        ring.transport.allgather_bytes(b"", SOON)
        return run_ranks(2, lambda inner: (ring.rank, inner.rank))

    assert run_ranks(2, fn) == [[(0, 0), (0, 1)], [(1, 0), (1, 1)]]


@pytest.mark.parametrize("fails", [False, True])
def test_nothing_is_left_behind(fails: bool) -> None:
    """Neither threads nor, without the garbage collector's help, memory."""

    class Big:
        pass

    alive = []

    def fn(ring: rc.Ring) -> None:
        big = Big()
        alive.append(weakref.ref(big))
        ring.transport.allgather_bytes(b"", SOON)
        if fails and ring.rank == 1:
            raise Odd
        if fails:
            ring.transport.allgather_bytes(b"", SOON)

    threads = set(threading.enumerate())
    gc.collect()
    gc.disable()
    try:
        try:
            run_ranks(3, fn)
        except Odd as error:
            assert fails
            del error
        assert [ref() for ref in alive] == [None] * 3
    finally:
        gc.enable()
    assert set(threading.enumerate()) == threads


@pytest.mark.filterwarnings("ignore:Using `assume` outside")  # hypothesis looks at the thread only
@given(st.data())
def test_hypothesis_sees_failed_assumptions_and_failures_of_ranks(data: st.DataObject) -> None:
    """`assume` on one rank rejects the example, as it does outside."""
    ranks, number = data.draw(st.integers(1, 4)), data.draw(st.integers(0, 9))

    def fn(ring: rc.Ring) -> int:
        if ring.rank == ring.size - 1:
            hypothesis.assume(number % 2 == 0)
        return number

    assert all(n % 2 == 0 for n in run_ranks(ranks, fn))


def test_hypothesis_shrinks_through_ranks() -> None:
    smallest = []

    @hypothesis.settings(database=None, max_examples=200)
    @given(st.integers(0, 1000), st.integers(1, 4))
    def prop(number: int, ranks: int) -> None:
        def fn(ring: rc.Ring) -> None:
            ring.transport.allgather_bytes(b"", SOON)
            if ring.rank == ring.size - 1 and number >= 37:
                smallest[:] = [number, ranks]
                raise AssertionError("seen")

        run_ranks(ranks, fn)

    with pytest.raises(AssertionError, match="seen"):
        prop()
    assert smallest == [37, 1]
