"""Post messages of gigabytes to a communicator that only takes notes, and print these: python pieces.py."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import mpi4py

mpi4py.rc.initialize = False

from ringcore_mpi.exchange import MpiExchange  # noqa: E402

from ringcore.protocols import Recv, Send  # noqa: E402


class Long:
    """Stands for an array of bytes: it knows its length and where it begins."""

    def __init__(self, nbytes: int, start: int = 0) -> None:
        self.shape, self.start = (nbytes,), start

    def __getitem__(self, part: slice) -> Long:
        start, stop, _ = part.indices(self.shape[0])
        return Long(stop - start, self.start + start)


class Notes:
    """A communicator that only takes notes."""

    def __init__(self) -> None:
        self.calls: list[dict[str, Any]] = []

    def _note(self, what: str, message: Any, peer: int, tag: int) -> object:
        array, count, _ = message
        assert count == array.shape[0]
        self.calls.append({"what": what, "count": count, "start": array.start, "peer": peer, "tag": tag})
        return object()

    def Irecv(self, message: Any, peer: int, tag: int) -> object:
        return self._note("Irecv", message, peer, tag)

    def Isend(self, message: Any, peer: int, tag: int) -> object:
        return self._note("Isend", message, peer, tag)


comm = Notes()
sends = [Send(Long(3 * 2**30 + 7), 1, 4)]
recvs = [Recv(Long(4 * 2**30 + 5), 1, 4), Recv(Long(0), 2, 4)]
MpiExchange(SimpleNamespace(comm=comm, rank=0), sends, recvs).post(sends, recvs)  # type: ignore[arg-type]
print(json.dumps(comm.calls))
