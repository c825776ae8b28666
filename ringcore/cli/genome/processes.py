"""Ranks that are processes: rank 0 gives orders, the others follow until they are dismissed.

Between two orders the others wait for the next one, so they hear at once of whatever ends the command. In
an order all ranks are inside collective calls, where the failure of one reaches all others.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import copy_context
from dataclasses import asdict
from typing import Any, TypeVar, cast

import ringcore as rc
from ringcore.cli.errors import InputError
from ringcore.cli.genome import encode, estimate, memory
from ringcore.cli.genome.attend import Echo, genome_rank
from ringcore.cli.genome.memory import Machine
from ringcore.cli.genome.ranks import Survey
from ringcore.cli.genome.settings import Settings
from ringcore.cli.stop import REFUSED, Stopped
from ringcore.errors import PeerTimeout, RingError

T = TypeVar("T")

_SURVEY, _ECHO, _LEAVE = "survey", "echo", "leave"
_LISTEN_SECONDS = 0.02
_SIGNAL_SECONDS = 0.3


class ProcessRanks:
    """All processes of a run, seen from rank 0; see `ringcore.cli.genome.ranks.Ranks`.

    Parameters
    ----------
    ring : Ring

    Notes
    -----
    Where another rank has failed or is gone, a call raises `Stopped`.
    """

    transport = "MPI"
    metered = 1

    def __init__(self, ring: rc.Ring) -> None:
        self._ring = ring
        self._over = False
        self.size = ring.size

    def survey(self, bases: int, settings: Settings) -> Survey:
        """Have all ranks time a piece at the same time: what they share, they share then, too."""
        with self._together():
            self._order(_SURVEY, bases=bases, settings=asdict(settings))
            reports = _reports(self._ring, bases, settings)
        groups: dict[str, list[int]] = {}
        for rank, report in enumerate(reports):
            groups.setdefault(report["boot"], []).append(rank)
        firsts = [(reports[ranks[0]], tuple(ranks)) for ranks in groups.values()]
        machines = [Machine(report["name"], ranks, report["free"]) for report, ranks in firsts]
        # In each hop all ranks have the same to do: the slowest one sets the pace.
        return Survey(machines, self.size * float(min(report["rate"] for report in reports)))

    def echo(self, codes: encode.Codes, settings: Settings, meter: rc.Meter) -> Echo:
        """Have all ranks do their part."""
        with self._together():
            self._order(_ECHO, bases=codes.size, settings=asdict(settings))
            return cast(Echo, genome_rank(self._ring, codes, codes.size, settings, meter))

    def aside(self, work: Callable[[], T]) -> T:
        """Work in another thread while this one answers the ranks that wait, and hears of their failures."""
        result: list[T] = []
        raised: list[BaseException] = []
        context = copy_context()

        def run() -> None:
            try:
                result.append(context.run(work))
            except BaseException as error:
                raised.append(error)

        worker = threading.Thread(target=run, name="ringcore-genome", daemon=True)
        transport = self._ring.transport
        with self._together(), transport.computing():
            listening = transport.exchange([], [])
            worker.start()
            while worker.is_alive():
                listening.test()
                worker.join(_LISTEN_SECONDS)
        if raised:
            raise raised[0]
        return result[0]

    def dismiss(self, code: int = 0) -> None:
        """Let the other ranks end, with this exit code."""
        with self._together():
            self._order(_LEAVE, code=code)

    def at_most(self, ranks: int) -> ProcessRanks:
        """All of them."""
        return self

    @contextmanager
    def _together(self) -> Iterator[None]:
        """While all work together: an exception here is told to all, and one elsewhere ends this, too."""
        try:
            with self._ring.exclusive("genome"):
                if self._over:
                    raise RingError("no rank follows any more.")
                yield
        except PeerTimeout as error:
            raise _ended(error) from error
        except RingError as error:
            time.sleep(_SIGNAL_SECONDS)  # a signal for all ranks may have reached another one first
            raise _ended(error) from error
        except BaseException:
            self._over = True
            raise

    def _order(self, do: str, **details: Any) -> None:
        self._ring.transport.allgather_bytes(json.dumps({"do": do, **details}).encode(), self._ring.timeout)


@contextmanager
def leading(ring: rc.Ring) -> Iterator[ProcessRanks]:
    """On rank 0: the others follow while the block runs, and end with it, whatever ends it.

    The block dismisses them when all is done. Where it refuses its input, they are dismissed here.
    """
    refused: InputError | None = None
    with ring.exclusive("genome"):
        ranks = ProcessRanks(ring)
        try:
            yield ranks
        except InputError as error:
            refused = error
            try:
                ranks.dismiss(REFUSED)
            except Stopped:  # it came while they were at work together: they know already
                raise Stopped(str(error).rstrip("."), REFUSED) from error
    if refused is not None:
        raise refused


def follow(ring: rc.Ring) -> int:
    """On every other rank: do what rank 0 orders, until it says with which exit code to end.

    Raises
    ------
    Stopped
        If this rank has no memory for its part, or another one has failed.
    """
    try:
        with ring.exclusive("genome"):
            while True:
                order = json.loads(ring.transport.allgather_bytes(b"", ring.timeout)[0])
                if order["do"] == _LEAVE:
                    return int(order["code"])
                bases, settings = order["bases"], Settings(**order["settings"])
                if order["do"] == _SURVEY:
                    _reports(ring, bases, settings)
                else:
                    genome_rank(ring, None, bases, settings)
    except MemoryError as error:
        cause = f"rank {ring.rank} of {ring.size} has not enough memory: {error}"
        cure = "Choose a --region, or share the work among more machines."
        raise Stopped(cause, REFUSED, outcome=cure, aloud=True) from error
    except RingError as error:
        stopped = _ended(error)
        if isinstance(error, PeerTimeout) and error.peer == 0:  # it cannot tell it
            stopped.aloud, stopped.outcome = ring.rank == 1, "Rank 0 may have written its files before."
        raise stopped from error


def _reports(ring: rc.Ring, bases: int, settings: Settings) -> list[dict[str, Any]]:
    """What each rank finds. Collective."""
    name, boot = memory.machine()
    rate = estimate.scores_per_second(bases, settings)
    mine = {"name": name, "boot": boot, "free": memory.free(), "rate": rate}
    everybody = ring.transport.allgather_bytes(json.dumps(mine).encode(), ring.timeout)
    return [json.loads(report) for report in everybody]


def _ended(error: RingError) -> Stopped:
    return Stopped(str(error).rstrip("."), REFUSED)
