"""Running one function on many ranks that are threads of this process."""

from __future__ import annotations

import operator
import threading
from collections.abc import Callable
from contextvars import copy_context
from typing import TYPE_CHECKING, Any, TypeVar

from ringcore.errors import PeerFailed
from ringcore_threads.transport import ThreadTransport, thread_group

if TYPE_CHECKING:
    from ringcore.ring import Ring

T = TypeVar("T")
_GRACE = 1.0  # seconds that an interrupted caller gives its ranks to end


def run_ranks(
    ranks: int, fn: Callable[..., T], *args: Any, timeout: float = 600.0, **ring_options: Any
) -> list[T]:
    """Call ``fn(ring, *args)`` on every rank of a new ring whose ranks are threads of this process.

    Parameters
    ----------
    ranks : int
        Number of ranks P >= 1. One rank runs in the calling thread, so that a debugger sees it.
    fn : callable
        Called as ``fn(ring, *args)``, with a `ringcore.Ring` whose ``rank`` is 0..P-1.
    *args
        The same objects for every rank: they are shared, not copied.
    timeout : float
        Seconds that a rank waits for another one before it raises `PeerTimeout`.
    **ring_options
        Passed on to `ringcore.Ring`.

    Returns
    -------
    list
        What each rank returned, in rank order.

    Raises
    ------
    BaseException
        Whatever a rank raised: the same object, with a note that names the rank. If several ranks
        raised, the lowest rank whose exception is not the consequence of another rank's.

    Notes
    -----
    An exception on one rank ends all: the others get `PeerFailed` as soon as they would have to wait.
    A rank that waits for one that has returned gets `PeerFailed` as well, at once. Each rank runs in
    a copy of the caller's context, so that context variables, such as ``numpy.errstate``, hold there.

    Examples
    --------
    >>> import ringcore as rc
    >>> rc.run_ranks(3, lambda ring, word: f"{word} {ring.rank} of {ring.size}", "rank")
    ['rank 0 of 3', 'rank 1 of 3', 'rank 2 of 3']
    """
    from ringcore.ring import Ring

    size = operator.index(ranks)
    if size < 1:
        raise ValueError(f"ranks must be at least 1. Got {size}.")

    def body(transport: ThreadTransport) -> T:
        ring: Ring = Ring(transport, timeout=timeout, **ring_options)
        return fn(ring, *args)

    transports = thread_group(size)
    threads = [_RankThread(transport, body) for transport in transports]
    if size == 1:
        threads[0].run()
    else:
        _run_all(threads)
    failed = _culprit(threads)
    if failed is None:
        return [thread.result for thread in threads]
    rank, error = failed
    error.add_note(f"on rank {rank} of {size}")
    for thread in threads:  # error -> traceback -> this frame -> error is a cycle: it would keep arrays alive
        thread.error = None
    try:
        raise error
    finally:
        del error, failed


class _RankThread(threading.Thread):
    """One rank; keeps what its function returned or raised."""

    def __init__(self, transport: ThreadTransport, body: Callable[[ThreadTransport], Any]) -> None:
        super().__init__(name=f"ringcore rank {transport.rank} of {transport.size}", daemon=True)
        self.transport = transport
        self.result: Any = None
        self.error: BaseException | None = None
        self.first = False
        self.ended = threading.Event()
        self._body = body
        self._context = copy_context()  # one copy each: a context cannot be entered twice at a time

    def run(self) -> None:
        world, rank, size = self.transport._group.world, self.transport.rank, self.transport.size
        try:
            self.result = self._context.run(self._body, self.transport)
        except BaseException as error:
            self.error = error
            self.first = world.fail(f"rank {rank} of {size} has raised {type(error).__name__}")
        else:
            world.leave(rank)
        finally:
            self.ended.set()


def _run_all(threads: list[_RankThread]) -> None:
    """Start all ranks and wait until all have ended; an interrupt here ends them.

    An event says that a rank has ended: `Thread.join`, when interrupted, may take the thread for ended
    in Python 3.11 (bpo-45274), and would not wait in the second attempt.
    """
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.ended.wait()
        for thread in threads:
            thread.join()
    except BaseException as error:
        threads[0].transport._group.world.fail(f"the caller of run_ranks has raised {type(error).__name__}")
        for thread in threads:
            if thread.ident is not None:  # started
                thread.ended.wait(_GRACE / len(threads))
        raise


def _culprit(threads: list[_RankThread]) -> tuple[int, BaseException] | None:
    """The rank whose exception explains the others, and the exception.

    That is the lowest rank, not the first in time, so that a defect that several ranks meet looks the
    same in every run. If all exceptions are consequences (a rank returned early) it is the first in time.
    """
    failed = [(thread, thread.error) for thread in threads if thread.error is not None]
    causes = [(thread, error) for thread, error in failed if not _is_consequence(error)]
    first = [(thread, error) for thread, error in failed if thread.first]
    for thread, error in causes or first:
        return thread.transport.rank, error
    return None


def _is_consequence(error: BaseException | None) -> bool:
    """Whether an exception is `PeerFailed`, or was raised because of, or while handling, one."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        if isinstance(error, PeerFailed):
            return True
        seen.add(id(error))
        error = error.__cause__ or error.__context__
    return False
