"""One rank of many, alone in this process: what it allocates is what that rank needs, and nothing else.

Ranks that are threads share one allocator, so that a peak per rank cannot be told. Here the other ranks are
stand-ins. A rehearsal with arrays of no size (strides 0) and kernels that do nothing records the control
messages of every rank; then one rank runs in earnest, and the stand-ins fill what it receives with zeros and
drop what it sends. Its own code, kernels and buffers are the real ones.
"""

from __future__ import annotations

import tracemalloc
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

import ringcore as rc
from ringcore.partial import Partial
from ringcore.protocols import ArraySpec, Grads, Wire
from tests.bare import BareTransport


class _Done:
    def test(self) -> bool:
        return True

    def wait(self, timeout: float) -> None:
        pass


class _Rehearsal(BareTransport):
    """Records what the ranks tell each other; no array moves."""

    def __init__(self, inner: Any) -> None:
        super().__init__(inner)
        self.heard: list[list[bytes]] = []

    def exchange(self, sends: Any, recvs: Any) -> _Done:
        return _Done()

    def allgather_bytes(self, data: bytes, timeout: float) -> list[bytes]:
        self.heard.append(self.inner.allgather_bytes(data, timeout))
        return self.heard[-1]


class _StandIns(BareTransport):
    """The other ranks: they say what they said in the rehearsal, and send zeros."""

    def __init__(self, rank: int, size: int, heard: Sequence[list[bytes]]) -> None:
        super().__init__(None, rank, size)
        self._heard = iter(heard)

    def exchange(self, sends: Any, recvs: Any) -> _Done:
        for send in sends:
            self.traffic.count(send.to, send.buffer.nbytes)
        for recv in recvs:
            recv.buffer[...] = 0
        return _Done()

    def allgather_bytes(self, data: bytes, timeout: float) -> list[bytes]:
        heard = next(self._heard)
        assert heard[self.rank] == data  # it says what it said in the rehearsal
        return heard


def _nothing(*shape: int, dtype: Any) -> np.ndarray:
    return np.broadcast_to(np.zeros((), dtype), shape)


class _Idle:
    """Kernels that do nothing, on arrays of no size."""

    name = "idle"

    def attend(self, q: Any, k: Any, v: Any, step: Any, into: Any) -> Partial:
        rows = _nothing(*q.shape[:-1], dtype="float32")
        return Partial(_nothing(*q.shape[:-1], v.shape[-1], dtype="float32"), rows, rows)

    def attend_backward(self, q: Any, k: Any, v: Any, *others: Any) -> Grads:
        return {n: _nothing(*x.shape, dtype="float32") for n, x in (("q", q), ("k", k), ("v", v))}

    def pack(self, arrays: Any, where: str) -> Wire:
        return Wire(np.empty(0, np.uint8), tuple(ArraySpec(x.shape, x.dtype) for x in arrays))

    def blank(self, specs: Any, where: str) -> Wire:
        return Wire(np.empty(0, np.uint8), tuple(specs))

    def unpack(self, wire_: Wire, like: Any) -> tuple[np.ndarray, ...]:
        return tuple(_nothing(*spec.shape, dtype=spec.dtype) for spec in wire_.specs)


class Peak(NamedTuple):
    """Most bytes that were allocated at a time, the rank's own inputs and results included."""

    forward: int
    backward: int

    @property
    def both(self) -> int:
        return max(self)


def peaks(
    layout: rc.Layout,
    mask: rc.Mask,
    ranks: Sequence[int],
    *,
    H: int,
    D: int,
    dtype: str = "float32",
    **options: Any,
) -> list[Peak]:
    """Peaks of some ranks in attention and its pullback, q, k, v and dout of shape (H, L, D)."""

    def rehearse(ring: rc.Ring) -> list[list[bytes]]:
        transport = _Rehearsal(ring.transport)
        x = _nothing(H, layout.count(ring.rank), D, dtype=dtype)
        idle = {**options, "backend": _Idle()}
        _, pullback = rc.attention_vjp(x, x, x, ring=rc.Ring(transport), layout=layout, mask=mask, **idle)
        pullback(x)
        return transport.heard

    heard = rc.run_ranks(layout.ranks, rehearse, timeout=60.0)
    return [_peak(layout, mask, rank, heard[rank], (H, D), dtype, options) for rank in ranks]


def _peak(
    layout: rc.Layout, mask: rc.Mask, rank: int, heard: Any, sizes: tuple[int, int], dtype: str, options: Any
) -> Peak:
    H, D = sizes
    ring = rc.Ring(_StandIns(rank, layout.ranks, heard))
    rng = np.random.default_rng(rank)
    tracemalloc.start()
    try:
        shape = (H, layout.count(rank), D)
        q, k, v, dout = (rng.random(shape, dtype=np.float32).astype(dtype, copy=False) for _ in range(4))
        tracemalloc.reset_peak()
        out, pullback = rc.attention_vjp(q, k, v, ring=ring, layout=layout, mask=mask, **options)
        forward = tracemalloc.get_traced_memory()[1]
        tracemalloc.reset_peak()
        grads = pullback(dout)
        backward = tracemalloc.get_traced_memory()[1]
        assert {x.shape for x in (out, *grads)} == {shape}
        return Peak(forward, backward)
    finally:
        tracemalloc.stop()
