"""A simulated job for `ringcore_mpi.vitals`: ranks that compute, send and wait, over letters that take time.

Time is a number that the simulation advances; nothing sleeps. Each rank runs a script, an iterator of steps:

    ("compute", seconds)   it answers who asks
    ("away", seconds)      it does not: between calls
    ("send", rank)         data for that rank; never blocks
    ("receive", rank)      waits for data from that rank
    ("compare",)           begins a comparison of arguments with all ranks: sends to all and waits for all

What happens to a rank, whatever it is at, is an interval of time in which it does not look:
`Network.suspend`, and for a dead one `Network.kill`.
"""

from __future__ import annotations

import heapq
import itertools
import json
import math
import random
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from ringcore_mpi.vitals import Vitals

from ringcore.errors import PeerTimeout, RingError

Step = tuple[Any, ...]
GROUP = "the ring"


@dataclass
class Rank:
    """One rank: where it is in its script, what has arrived, how it ended."""

    number: int
    vitals: Vitals
    steps: list[Step]
    begun: bool = False
    until: float = 0.0
    sleep: tuple[float, float] = (math.inf, math.inf)
    data: Counter[int] = field(default_factory=Counter)
    letters: list[tuple[int, str]] = field(default_factory=list)
    error: RingError | None = None
    ended: float | None = None


class Network:
    """Ranks, and letters and data under way between them.

    Parameters
    ----------
    scripts : iterable of iterable of Step
    timeout : float
    seed : int
        Of the delays.
    latency : float
        Longest time that a letter takes; each takes a random part of it, and overtakes none of its pair.
    look : float
        Longest time between two looks of a rank.
    telling : bool
        Whether a rank that gives up tells the others, as `ringcore_mpi.office` does.
    """

    def __init__(
        self,
        scripts: Iterable[Iterable[Step]],
        timeout: float = 4.0,
        seed: int = 0,
        latency: float = 0.1,
        look: float = 0.1,
        telling: bool = True,
    ) -> None:
        self.now, self.timeout, self.latency, self.look, self.telling = 0.0, timeout, latency, look, telling
        self.letters = 0
        self.at_work = 0.0  # when last a rank computed, or went on
        self._random = random.Random(seed)
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self._arrivals: dict[tuple[int, int], float] = {}
        steps = [[*script] for script in scripts]
        self.ranks = [
            Rank(n, Vitals(n, len(steps), partial(self._post, n), self._clock), steps[n])
            for n in range(len(steps))
        ]
        for rank in self.ranks:
            self._at(self._random.uniform(0, look), partial(self._live, rank))

    def suspend(self, rank: int, when: float, seconds: float) -> Network:
        """For so long a rank does not look."""
        self.ranks[rank].sleep = when, when + seconds
        return self

    def kill(self, rank: int, when: float = 0.0) -> Network:
        """From then on it never does."""
        return self.suspend(rank, when, math.inf)

    def run(self, seconds: float = math.inf) -> Network:
        """Let so much time pass, or as long as anything happens."""
        end = self.now + seconds
        while self._events and self._events[0][0] <= end:
            self.now, _, event = heapq.heappop(self._events)
            event()
        return self

    # ---------------------------------------------------------------- time and letters

    def _clock(self) -> float:
        return self.now

    def _at(self, when: float, event: Callable[[], None]) -> None:
        if when < math.inf:
            heapq.heappush(self._events, (when, next(self._order), event))

    def _carry(self, source: int, to: int, arrive: Callable[[], None]) -> None:
        when = max(self._arrivals.get((source, to), 0.0), self.now + self._random.uniform(0, self.latency))
        self._arrivals[source, to] = when
        self._at(when, arrive)

    def _post(self, source: int, letter: dict[str, Any], to: int) -> None:
        self.letters += 1
        text = json.dumps(letter)  # as it travels
        self._carry(source, to, lambda: self.ranks[to].letters.append((source, text)))

    def _send(self, source: int, to: int) -> None:
        self._carry(source, to, lambda: self.ranks[to].data.update([source]))

    # ---------------------------------------------------------------- a rank's life

    def _live(self, rank: Rank) -> None:
        """One look of a rank, and when the next one will be."""
        begin, end = rank.sleep
        if begin <= self.now < end:
            self._at(end, partial(self._live, rank))
            return
        try:
            away = self._look(rank)
        except RingError as error:
            rank.error, rank.ended = error, self.now
            return
        if not rank.steps:
            rank.ended = self.now
            return
        self._at(self.now + away + self._random.uniform(0.2, 1) * self.look, partial(self._live, rank))

    def _look(self, rank: Rank) -> float:
        """Answer, ask, go on; returns for how long the rank is away."""
        while rank.letters:
            source, text = rank.letters.pop(0)
            rank.vitals.receive(source, json.loads(text))
        while rank.steps:
            what, *args = rank.steps[0]
            if what == "away":
                rank.steps.pop(0)
                return float(args[0])
            if not getattr(self, f"_{what}_step")(rank, *args):
                return 0.0
            rank.begun, self.at_work = False, self.now
            rank.steps.pop(0)
        return 0.0

    def _compute_step(self, rank: Rank, seconds: float) -> bool:
        if not rank.begun:
            rank.begun, rank.until, rank.vitals.computing = True, self.now + seconds, True
        rank.vitals.computing = self.now < rank.until
        self.at_work = self.now
        return not rank.vitals.computing

    def _send_step(self, rank: Rank, to: int) -> bool:
        self._send(rank.number, to)
        return True

    def _receive_step(self, rank: Rank, source: int, for_data: bool = True) -> bool:
        if not rank.begun:
            rank.begun = True
            rank.vitals.begin(self.timeout, GROUP)
        if not rank.data[source]:
            self._await(rank, source, for_data)
            return False
        rank.data[source] -= 1
        rank.vitals.end()
        return True

    def _compare_step(self, rank: Rank) -> bool:
        others = [other for other in range(len(self.ranks)) if other != rank.number]
        begun = rank.vitals.comparisons
        begun[GROUP] = begun.get(GROUP, 0) + 1
        for other in others:
            self._send(rank.number, other)
        rank.steps[1:1] = [("receive", other, False) for other in others]
        return True

    def _await(self, rank: Rank, source: int, for_data: bool) -> None:
        try:
            rank.vitals.awaits(source, for_data)
        except RingError as error:
            peer = error.peer if isinstance(error, PeerTimeout) else None
            for other in range(len(self.ranks)) if self.telling else ():
                if other != rank.number:
                    self._post(rank.number, rank.vitals.failure(str(error), peer, True), other)
            raise
