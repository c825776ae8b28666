"""Who is alive: what ranks ask and tell each other while one waits for another.

A rank that waits asks the one it waits for how it is. Whoever is inside a call answers at once, also while
it computes. An answer says "I compute", or "I wait for rank x, and when I last knew it, or whoever it waits
for, to be at work". So a wait ends when the rank waited for is silent for ``timeout`` seconds, or when nobody
along the chain has been at work for so long: because its last rank is silent, or because it is a circle.

Such knowledge ages by the time between two questions at each link: what a rank knows from others only, it
judges later by so much. Who waits for the silent rank itself tells all.

One `Vitals` serves a communicator and all that were split off it, with rank numbers of the former: a rank
that is busy in one group still answers whoever waits for it in another.

This module is bookkeeping only: it gets the time and letters, and gives letters. `transport` sends them.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ringcore.errors import Awaited, PeerFailed, PeerTimeout, RingError, waited_in_vain

ASK, ANSWER, FAILED = "ask", "answer", "failed"
_LONGEST_CHAIN = 16
_STALE = 3  # answers that are so many times older than the time between questions do not count

Letter = dict[str, Any]
Put = Callable[[Letter, int], None]


@dataclass
class Wait:
    """One wait of this rank.

    Attributes
    ----------
    peer : int
    timeout : float
        Seconds.
    heard : float
        When the peer was last known to be there.
    alive : float
        When somebody along the chain was last known to be at work.
    next_question : float
        When to ask again.
    looked : float
        When this rank last looked: time in which it was itself suspended does not count.
    group : str
        In which group it waits.
    lag : float
        How many seconds late the peer may know that somebody is at work.
    passed : float or None
        Since when the peer has said that it is at a later comparison of the group than this rank.
    """

    peer: int
    timeout: float
    heard: float
    alive: float
    next_question: float
    looked: float
    group: str
    lag: float = 0.0
    passed: float | None = None

    @property
    def period(self) -> float:
        """Seconds between two questions."""
        return min(1.0, self.timeout / 4)

    @property
    def link(self) -> float:
        """By how many seconds knowledge may age from the peer to here: it asks, and is answered soon."""
        return 1.5 * self.period

    def move(self, seconds: float) -> None:
        """Leave so much time out."""
        self.heard += seconds
        self.alive += seconds
        if self.passed is not None:
            self.passed += seconds


class Vitals:
    """What one rank knows of the others, and says of itself.

    Parameters
    ----------
    rank, size : int
    put : callable
        Sends a letter to a rank.
    clock : callable
        Seconds; of this rank only, clocks are not compared.
    """

    def __init__(self, rank: int, size: int, put: Put, clock: Callable[[], float] = time.monotonic) -> None:
        self.rank, self.size = rank, size
        self.status = "between calls"
        self.computing = False
        self.comparisons: dict[str, int] = {}  # begun so far, by group
        self.broken: RingError | None = None
        self.muted = False
        """The communicator is about to be freed: no letter may follow any more."""
        self._put, self._clock = put, clock
        self._wait: Wait | None = None
        self._answers: dict[int, Letter] = {}

    # ---------------------------------------------------------------- waiting

    def begin(self, timeout: float, group: str) -> None:
        """A wait begins."""
        now = self._clock()
        self._wait = Wait(-1, timeout, now, now, now, now, group)

    def end(self) -> None:
        """It is over."""
        self._wait = None

    def awaits(self, peer: int, for_data: bool) -> None:
        """Still waiting for ``peer``: ask it how it is, if it is time to.

        Raises
        ------
        PeerTimeout
            If the peer is silent, or nobody along the chain has been at work, for too long.
        PeerFailed
            If data are awaited of a peer that has gone on to another call.
        """
        wait, now = self._wait, self._clock()
        assert wait is not None
        if wait.peer != peer:  # the last one has done its part: somebody was at work
            wait = self._wait = Wait(peer, wait.timeout, now, now, now + wait.period, now, wait.group)
        if now - wait.looked > wait.period:
            wait.move(now - wait.looked)
        wait.looked = now
        if now - wait.heard > wait.timeout or now - wait.alive > wait.timeout + wait.lag:
            raise self._timed_out(wait, now)
        if now >= wait.next_question and not self.muted:
            wait.next_question = now + wait.period
            self._put({"kind": ASK, "at": now}, peer)
        if for_data and wait.passed is not None and now - wait.passed > 2 * wait.period:
            raise PeerFailed(
                f"{self._name(self.rank)} waits in vain for {self._name(peer)} ({self.status}): that rank "
                f"has gone on to another call ({self._answers[peer]['status']}), or compares arguments that "
                "this one takes for known. Look for calls, arguments or caught exceptions on some ranks only."
            )

    # ---------------------------------------------------------------- letters

    def receive(self, source: int, letter: Letter) -> None:
        """Take a letter in, and answer it.

        Raises
        ------
        PeerTimeout, PeerFailed
            If the letter says that the call cannot be finished.
        """
        if letter["kind"] == ASK:
            if self.muted:
                return
            self._put(self._state() | {"asked_at": letter["at"]}, source)
        elif letter["kind"] == ANSWER:
            self._answers[source] = letter
            self._learn(source, letter)
        else:
            self.broken = self._failure_of(source, letter)
            raise self.broken

    def failure(self, text: str, peer: int | None, fatal: bool) -> Letter:
        """What to tell all others when this rank cannot go on; ``peer`` is a rank that does not answer."""
        return {"kind": FAILED, "text": text, "peer": peer, "fatal": fatal}

    def _state(self) -> Letter:
        now, wait = self._clock(), self._wait
        state: Letter = {
            "kind": ANSWER,
            "status": self.status,
            "comparisons": self.comparisons,
            "idle_for": 0.0,
            "lag": 0.0,
            "chain": [],
        }
        if wait is not None and not self.computing and wait.peer >= 0:
            state["idle_for"] = now - wait.alive
            state["lag"] = wait.lag + wait.link
            state["chain"] = [list(link) for link in self._chain(wait, now)]
        return state

    def _learn(self, source: int, answer: Letter) -> None:
        wait = self._wait
        if wait is None or source != wait.peer:
            return
        # The answer is as old as the question at least: counted so, delays never make a rank look alive.
        wait.heard = max(wait.heard, answer["asked_at"])
        wait.alive = max(wait.alive, answer["asked_at"] - answer["idle_for"])
        chain = [link[0] for link in answer["chain"]]
        # In a circle lags add up for ever: there the way back to this rank counts.
        links = chain.index(self.rank) + 1 if self.rank in chain else self.size
        wait.lag = min(answer["lag"], links * wait.link)
        if answer["comparisons"].get(wait.group, 0) <= self.comparisons.get(wait.group, 0):
            wait.passed = None
        elif wait.passed is None:
            wait.passed = self._clock()

    # ---------------------------------------------------------------- errors

    def _chain(self, wait: Wait, now: float) -> list[tuple[int, str | None, bool]]:
        """(rank, status, whether it answers) of the rank waited for, the one that it waits for, and so on."""
        answer = self._answers.get(wait.peer)
        answers = answer is not None and now - answer["asked_at"] < _STALE * wait.period
        chain: list[tuple[int, str | None, bool]] = [
            (wait.peer, answer["status"] if answer else None, answers)
        ]
        if answers and answer is not None:
            chain += [tuple(link) for link in answer["chain"] if link[0] != self.rank]
        return chain[:_LONGEST_CHAIN]

    def _timed_out(self, wait: Wait, now: float) -> PeerTimeout:
        chain = self._chain(wait, now)
        links = [Awaited(self._name(rank), status, answers) for rank, status, answers in chain]
        return waited_in_vain(self._name(self.rank), self.status, wait.timeout, links, chain[-1][0])

    def _failure_of(self, source: int, letter: Letter) -> RingError:
        me, other, text = self._name(self.rank), self._name(source), letter["text"]
        if letter["peer"] == self.rank:
            return PeerFailed(f"{me} cannot finish ({self.status}): it has been waited for too long. {text}")
        if letter["peer"] is not None:
            return PeerTimeout(f"{text} (told by rank {source} to {me}, at {self.status})", letter["peer"])
        cause = f"{text.rstrip('.')}. The cause is raised there."
        return PeerFailed(f"{me} cannot finish ({self.status}): {other} has failed with {cause}")

    def _name(self, rank: int) -> str:
        return f"rank {rank} of {self.size}"
