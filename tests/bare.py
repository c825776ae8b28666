"""What a transport made for a test has, besides what it is made for."""

from __future__ import annotations

import threading
from contextlib import nullcontext
from typing import Any

from ringcore.protocols import Traffic


class BareTransport:
    """Around another transport, or alone; a subclass brings `exchange` and whatever it changes."""

    needs_polling = False
    where = "host"
    cores = None

    def __init__(self, inner: Any = None, rank: int = 0, size: int = 1) -> None:
        self.inner = inner
        self.rank, self.size = (rank, size) if inner is None else (inner.rank, inner.size)
        self.traffic = Traffic() if inner is None else inner.traffic
        self.status = "between calls"
        self.lock = threading.RLock()
        self.given_up: list[BaseException] = []

    def exchange(self, sends: Any, recvs: Any) -> Any:
        raise NotImplementedError

    def computing(self) -> Any:
        return nullcontext() if self.inner is None else self.inner.computing()

    def allgather_bytes(self, data: bytes, timeout: float) -> list[bytes]:
        return self.inner.allgather_bytes(data, timeout)  # type: ignore[no-any-return]

    def split(self, color: int, key: int, timeout: float) -> Any:
        return type(self)(self.inner.split(color, key, timeout))

    def give_up(self, error: BaseException) -> None:
        self.given_up.append(error)

    def close(self) -> None:
        pass
