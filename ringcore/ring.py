"""Ring: the ranks that share a sequence, and what they can do together."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any, TypeVar

from ringcore import collectives, registry
from ringcore.agree import Agreements, agree, is_agreed
from ringcore.cores import cores
from ringcore.errors import RingError
from ringcore.layout import Layout
from ringcore.plan import Plans
from ringcore.protocols import Array, Traffic, Transport
from ringcore.worker import Worker

T = TypeVar("T")

CHECKS = ("always", "once")
IDLE = "between calls"


class Ring:
    """A group of ranks over which one sequence is spread.

    Parameters
    ----------
    comm : communicator, optional
        None: one rank, nothing to install. Otherwise anything that a transport is known for, or a
        `ringcore.protocols.Transport` itself. Ranks as threads come from `run_ranks`.
    timeout : float, default 600
        Seconds after which waiting for a silent rank becomes an error. A rank that computes, or waits
        for one that does, is not silent.
    check : {'always', 'once'}, default 'always'
        How often the ranks compare the arguments of attention. 'once': a call with a ``layout`` whose
        arguments are like those of an earlier one is not compared again, which saves a message. Array
        messages then carry a digest of the arguments: a rank that gets another one raises `RingError`.
        After any wrong argument the ring cannot be used any more.

    Attributes
    ----------
    rank, size : int
        This rank, and the number of ranks P.
    transport : Transport
    timeout : float
    check : str

    Raises
    ------
    TypeError
        If no transport is known for ``comm``.
    ValueError
        If ``timeout`` is not a positive number, or ``check`` is neither of the two.
    PeerTimeout
        If not all ranks of a communicator make a ring of it within ``timeout``.

    Notes
    -----
    Collective. An MPI communicator is duplicated once and the duplicate kept on it: making another ring of
    it costs nothing, and both share their messages. The caller's own messages never meet ours.

    Examples
    --------
    >>> import ringcore as rc
    >>> rc.Ring()
    Ring(rank=0, size=1)
    >>> rc.run_ranks(3, lambda ring: ring.rank)
    [0, 1, 2]
    """

    def __init__(self, comm: Any = None, *, timeout: float = 600.0, check: str = "always") -> None:
        if not timeout > 0:  # NaN too
            raise ValueError(f"timeout must be a positive number of seconds. Got {timeout!r}.")
        if check not in CHECKS:
            raise ValueError(f"check must be 'always' or 'once'. Got {check!r}.")
        self.transport: Transport = registry.transport_of(comm, timeout)
        self.timeout = float(timeout)
        self.check = check
        self.agreements = Agreements()
        self.plans = Plans()
        self.worker = Worker()

    @property
    def rank(self) -> int:
        """This rank, 0 ... size - 1."""
        return self.transport.rank

    @property
    def size(self) -> int:
        """Number of ranks P."""
        return self.transport.size

    @property
    def traffic(self) -> Traffic:
        """Messages and bytes that this rank has sent so far, counted in the transport."""
        return self.transport.traffic

    @contextmanager
    def exclusive(self, call: str) -> Iterator[None]:
        """For the time of a collective call: this thread alone, the call's name as status, this rank's cores.

        An exception that not all ranks have agreed on ends the call for all.

        Raises
        ------
        RingError
            If another thread is inside a call on this ring: their messages would mix.
        """
        transport = self.transport
        if not transport.lock.acquire(blocking=False):  # type: ignore[attr-defined]
            raise RingError(
                f"one thread at a time may use a ring. Got {call} on rank {self.rank} while another thread "
                "is inside a call. Give each thread a ring of its own: ring.split(0); MPI: Ring(comm.Dup())."
            )
        before = transport.status
        limit = cores.set(transport.cores)
        try:
            transport.status = call
            self.agreements.mark = b""
            yield
        except BaseException as error:
            if not is_agreed(error, transport):
                transport.give_up(error)
            raise
        finally:
            cores.reset(limit)
            transport.status = before
            transport.lock.release()  # type: ignore[attr-defined]

    def close(self) -> None:
        """Give back what the ring holds: its thread, and, if it was split off, its communicator. Collective.

        What is kept on the caller's communicator goes with that. ``with ring.split(color) as part:`` closes
        the part.
        """
        self.worker.close()
        self.transport.close()

    def __enter__(self) -> Ring:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:  # else not every rank may come here
            self.close()

    def __repr__(self) -> str:
        return f"Ring(rank={self.rank}, size={self.size})"

    def scatter(self, x: Array | None, layout: Layout, root: int = 0, axis: int = -2) -> Array:
        """Give each rank its shard of an array that ``root`` holds. Collective.

        See `ringcore.collectives.scatter`.
        """
        return collectives.scatter(x, self, layout, root=root, axis=axis)

    def gather(self, x: Array, layout: Layout, root: int = 0, axis: int = -2) -> Array | None:
        """Join all shards on ``root``; None on the other ranks. Collective.

        See `ringcore.collectives.gather`.
        """
        return collectives.gather(x, self, layout, root=root, axis=axis)

    def allreduce(self, x: Array) -> Array:
        """The sum of everybody's array, the same bits on every rank. Collective.

        See `ringcore.collectives.allreduce`.
        """
        return collectives.allreduce(x, self)

    def split(self, color: int, key: int = 0) -> Ring:
        """The ring of the ranks that gave the same color, ordered by key, then rank. Collective."""

        def check() -> tuple[int, int]:
            numbers = operator.index(color), operator.index(key)
            if any(abs(n) >= 2**31 for n in numbers):
                raise ValueError(f"color and key must be less than 2**31. Got {color} and {key}.")
            return numbers

        with self.exclusive("split"):
            numbers, _ = agree("split", self, check, lambda _: {})
            part = self.transport.split(*numbers, self.timeout)
            return Ring(part, timeout=self.timeout, check=self.check)


def run_ranks(ranks: int, fn: Callable[..., T], *args: Any, timeout: float = 600.0) -> list[T]:
    """Call ``fn(ring, *args)`` on ranks that are threads of this process.

    For tests, notebooks and single machines: nothing to install, arrays are shared by reference.

    Parameters
    ----------
    ranks : int
        Number of ranks P, >= 1.
    fn : callable
        Gets a `Ring` and ``args``.
    timeout : float, default 600
        Seconds after which waiting for a silent rank becomes an error.

    Returns
    -------
    list
        What ``fn`` returned on each rank, in rank order.

    Raises
    ------
    Exception
        What the first rank to fail raised; the other ranks are ended, and a note names the rank.

    Examples
    --------
    >>> import ringcore as rc
    >>> rc.run_ranks(2, lambda ring, x: ring.rank + x, 10)
    [10, 11]
    """
    return registry.thread_runner()(ranks, fn, *args, timeout=timeout)  # type: ignore[no-any-return]
