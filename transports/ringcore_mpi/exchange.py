"""Messages in flight."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from mpi4py import MPI

from ringcore.errors import PeerFailed, RingError
from ringcore.protocols import Recv, Send
from ringcore_mpi.pieces import pieces

if TYPE_CHECKING:
    from ringcore_mpi.transport import MpiTransport


class _Part(NamedTuple):
    """What one MPI request stands for."""

    what: str
    peer: int
    nbytes: int


class MpiExchange:
    """Messages in flight; see `ringcore.protocols.Exchange`. They move while `test` or `wait` is called."""

    def __init__(self, transport: MpiTransport, sends: Sequence[Send], recvs: Sequence[Recv]) -> None:
        self._transport = transport
        self._buffers = [*(s.buffer for s in sends), *(r.buffer for r in recvs)]
        self._requests: list[MPI.Request] = []
        self._parts: list[_Part] = []

    def post(self, sends: Sequence[Send], recvs: Sequence[Recv]) -> None:
        """Hand the messages to MPI. From now on somebody must keep this object until they have landed."""
        comm = self._transport.comm
        for buffer, source, tag in recvs:  # before all sends: what arrives finds its place
            self._post(comm.Irecv, "receive from", buffer, source, tag)
        for buffer, to, tag in sends:
            self._post(comm.Isend, "send to", buffer, to, tag)

    def test(self) -> bool:
        """Move data, answer those who ask; True when all messages are complete.

        Raises
        ------
        RingError
            If a message is not as long as it should be.
        PeerFailed, PeerTimeout
            If another rank has given up.
        """
        self._transport.listen()
        return self._complete()

    def wait(self, timeout: float) -> None:
        """Return when all messages are complete.

        Raises
        ------
        PeerTimeout
            If the rank waited for, or the one that it waits for in turn, is silent for ``timeout`` seconds.
        RingError, PeerFailed
            As for `test`.
        """
        if not self._complete():
            self._transport.wait_for(self._pending, timeout, for_data=True)

    def _post(self, call: Any, what: str, buffer: Any, peer: int, tag: int) -> None:
        for piece in pieces(buffer.shape[0]):
            part = buffer[piece]
            self._requests.append(call([part, part.shape[0], MPI.BYTE], peer, tag))
            self._parts.append(_Part(what, peer, part.shape[0]))

    def _pending(self) -> int | None:
        if self._complete():
            return None
        for part, request in zip(self._parts, self._requests, strict=True):
            try:
                if not request.Get_status():
                    return part.peer
            except MPI.Exception as error:
                raise self._lost(f"{part.what} rank {part.peer}", error.Get_error_string()) from error
        return self._parts[0].peer  # asking has moved data as well: all are here, as the next look will say

    def _complete(self) -> bool:
        if not self._requests:
            return True
        statuses = [MPI.Status() for _ in self._requests]
        try:
            if not MPI.Request.Testall(self._requests, statuses):
                return False
        except MPI.Exception as error:
            raise self._failure(error, statuses) from error
        for part, status in zip(self._parts, statuses, strict=True):
            if part.what == "receive from" and status.Get_count(MPI.BYTE) != part.nbytes:
                raise self._wrong_length(part, f"{status.Get_count(MPI.BYTE)} bytes")
        self._requests, self._parts, self._buffers = [], [], []
        self._transport.landed(self)
        return True

    def _failure(self, error: MPI.Exception, statuses: Sequence[MPI.Status]) -> RingError:
        """What MPI's error means, for the message that it concerns."""
        for part, status in zip(self._parts, statuses, strict=True):
            code = status.Get_error()
            if code in (MPI.SUCCESS, MPI.ERR_PENDING):
                continue
            if MPI.Get_error_class(code) == MPI.ERR_TRUNCATE:
                return self._wrong_length(part, "more")
            return self._lost(f"{part.what} rank {part.peer}", MPI.Get_error_string(code))
        if error.Get_error_class() == MPI.ERR_TRUNCATE:
            return self._wrong_length(self._parts[0], "more")
        return self._lost(f"exchange messages with ranks {self._peers()}", error.Get_error_string())

    def _lost(self, doing: str, why: str) -> PeerFailed:
        me, status = f"rank {self._transport.rank} of {self._transport.size}", self._transport.status
        error = PeerFailed(
            f"{me} cannot {doing} ({status}). It may have died. MPI says: {' '.join(why.split())}"
        )
        error.lost = True
        return error

    def _wrong_length(self, part: _Part, got: str) -> RingError:
        return RingError(
            f"a receive must have the length of its send. Expected {part.nbytes} bytes from rank {part.peer} "
            f"on rank {self._transport.rank}, got {got}. Give all ranks the same layout, shapes and dtypes."
        )

    def _peers(self) -> str:
        return ", ".join(map(str, sorted({part.peer for part in self._parts})))
