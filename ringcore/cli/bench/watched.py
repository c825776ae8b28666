"""A transport that is looked at from outside: what it exchanges, and how long a rank is held up by it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ringcore.protocols import Exchange, Recv, Send, Transport


@dataclass(frozen=True)
class Noted:
    """An exchange without its contents: (peer, tag, bytes) of each message."""

    sends: tuple[tuple[int, int, int], ...]
    recvs: tuple[tuple[int, int, int], ...]


class Watched:
    """A `ringcore.protocols.Transport` that hands everything on to another one.

    Attributes
    ----------
    blocked : float
        Seconds that this rank has spent in posting messages and in waiting for them: what does not hide
        behind computing. Looks that it takes while it computes are not among them.
    showing : float
        Seconds spent in showing blocks to the ranks of this node, which read them where they lie.
    shown : int
        Bytes of these blocks.
    notes : list of Noted or None
        Exchanges so far, if they are to be noted.
    """

    def __init__(self, inner: Transport) -> None:
        self.inner = inner
        self.blocked = self.showing = 0.0
        self.shown = 0
        self.notes: list[Noted] | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    @property
    def status(self) -> str:
        """The other one's."""
        return self.inner.status

    @status.setter
    def status(self, status: str) -> None:
        self.inner.status = status

    def exchange(self, sends: Sequence[Send], recvs: Sequence[Recv]) -> Exchange:
        """Post; an exchange of nothing is not looked at."""
        if not sends and not recvs:
            return self.inner.exchange(sends, recvs)
        if self.notes is not None:
            self.notes.append(
                Noted(
                    tuple((s.to, s.tag, int(s.buffer.shape[0])) for s in sends),
                    tuple((r.source, r.tag, int(r.buffer.shape[0])) for r in recvs),
                )
            )
        begin = time.perf_counter()
        exchange = self.inner.exchange(sends, recvs)
        self.blocked += time.perf_counter() - begin
        return _Watched(self, exchange)

    def publish(self, buffer: Any, timeout: float) -> Any:
        """As `ringcore.protocols.SharesMemory` has it; for transports that have it."""
        begin = time.perf_counter()
        found = self.inner.publish(buffer, timeout)  # type: ignore[attr-defined]
        self.showing += time.perf_counter() - begin
        self.shown += 0 if found is None else int(buffer.shape[0])
        return found

    def close(self) -> None:
        """Nothing: the other one stays."""


class _Watched:
    """Messages in flight."""

    def __init__(self, transport: Watched, inner: Exchange) -> None:
        self._transport, self._inner = transport, inner

    def test(self) -> bool:
        return self._inner.test()

    def wait(self, timeout: float) -> None:
        begin = time.perf_counter()
        try:
            self._inner.wait(timeout)
        finally:
            self._transport.blocked += time.perf_counter() - begin


class Replay:
    """The same exchanges once more, with nothing to compute between them. Host memory only.

    Parameters
    ----------
    transport : Transport
    notes : sequence of Noted
    """

    def __init__(self, transport: Transport, notes: Sequence[Noted]) -> None:
        self._transport = transport
        self._notes = notes
        sends = max((len(note.sends) for note in notes), default=0)
        recvs = max((len(note.recvs) for note in notes), default=0)
        self._out = [_room([n.sends for n in notes], i) for i in range(sends)]
        self._in = [_room([n.recvs for n in notes], i) for i in range(recvs)]

    def seconds(self, timeout: float) -> float:
        """Until all of them are complete. Collective."""
        if not self._notes:
            return 0.0
        begin = time.perf_counter()
        for note in self._notes:
            sends = [
                Send(buffer[:size], to, tag)
                for buffer, (to, tag, size) in zip(self._out, note.sends, strict=False)
            ]
            recvs = [
                Recv(buffer[:size], source, tag)
                for buffer, (source, tag, size) in zip(self._in, note.recvs, strict=False)
            ]
            self._transport.exchange(sends, recvs).wait(timeout)
        return time.perf_counter() - begin


def _room(messages: Sequence[Sequence[tuple[int, int, int]]], i: int) -> np.ndarray:
    """A buffer for the i-th message of every exchange, its pages there already."""
    return np.ones(max(m[i][2] for m in messages if len(m) > i), np.uint8)
