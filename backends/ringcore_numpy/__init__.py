"""Attention kernels for NumPy arrays: tiled, in place, on all cores."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ringcore import wire
from ringcore.block import check_tile
from ringcore.partial import Partial
from ringcore.protocols import Array, ArraySpec, Grads, Hidden, Stats, Wire
from ringcore.step import Step
from ringcore_numpy import chunks, dispatch

__all__ = ["NumpyBackend", "backend"]


@dataclass(frozen=True)
class NumpyBackend:
    """See `ringcore.protocols.Backend` and `ringcore.protocols.FastFeedForward`.

    Parameters
    ----------
    tile : (int, int), optional
        Rows and columns of a score tile; by default what suits the kernels and this machine's caches.
    compiled : bool, optional
        Whether to use the compiled kernels, which need numba and SciPy. None: if they are installed.
    """

    tile: tuple[int, int] | None = None
    compiled: bool | None = None
    name: str = "numpy"

    def __post_init__(self) -> None:
        if self.tile is not None:
            check_tile(self.tile)

    def attend(self, q: Array, k: Array, v: Array, step: Step, into: Partial | None) -> Partial:
        """Merge attention over one key shard into a partial, which is written to."""
        return dispatch.attend(q, k, v, step, into, self.tile, self.compiled)

    def attend_backward(
        self,
        q: Array,
        k: Array,
        v: Array,
        out: Array | None,
        dout: Array,
        stats: Stats,
        delta: Array,
        step: Step,
        wrt: Sequence[str],
        into: Grads,
    ) -> Grads:
        """Add one step's gradients to those in ``into``, which are written to; ``out`` is not needed."""
        return dispatch.attend_backward(
            q, k, v, dout, stats, delta, step, wrt, into, self.tile, self.compiled
        )

    def feedforward_chunk(self, features: int, itemsize: int) -> int:
        """Tokens whose hidden numbers stay in the cache."""
        return chunks.chunk_of(features, itemsize)

    def hidden(self, activation: str) -> Hidden | None:
        """The compiled activation, in place and on all cores; None without compiled kernels."""
        return dispatch.hidden(activation, self.compiled)

    def pack(self, arrays: Sequence[Array], where: str) -> Wire:
        """One contiguous buffer with a copy of all arrays; NumPy knows host memory only."""
        return wire.pack(arrays)

    def blank(self, specs: Sequence[ArraySpec], where: str) -> Wire:
        """A fresh buffer to receive into."""
        return wire.blank(specs)

    def unpack(self, wire_: Wire, like: Array) -> tuple[Array, ...]:
        """Views of the buffer."""
        return wire.unpack(wire_)


backend = NumpyBackend()
