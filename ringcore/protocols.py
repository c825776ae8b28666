"""The two seams: what a backend and a transport must offer, and the records that cross them.

A backend knows one array library and nothing of ranks; a transport moves bytes between ranks
and knows nothing of arrays. The ring driver is the only code that holds both.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, runtime_checkable

if TYPE_CHECKING:
    from ringcore.partial import Partial
    from ringcore.step import Step

Array = Any
"""An array of any library that follows the array API standard; shapes are in the docstrings."""


class ArraySpec(NamedTuple):
    """Shape and dtype of an array that is to be received."""

    shape: tuple[int, ...]
    dtype: Any


class Stats(NamedTuple):
    """Softmax statistics of the whole row: reference ``m`` and sum ``l``, shape (\\*B, H, L_q)."""

    m: Array
    l: Array  # noqa: E741 - the field's letter for the softmax sum


Grads = dict[str, Array]
"""Gradients by the name of the input, "q", "k" or "v", accumulation dtype."""


@dataclass(frozen=True)
class Wire:
    """Arrays packed into one contiguous buffer of bytes, with what is needed to unpack them.

    ``buffer`` is a flat uint8 array where the transport can read it (for a host transport: NumPy).
    """

    buffer: Array
    specs: tuple[ArraySpec, ...]

    def ready(self) -> None:
        """Return when the transport may read the buffer.

        A host buffer is ready as soon as it exists. A device backend overrides this: it waits for the
        event that completes the bytes ('host' and 'device'), or orders streams ('stream').
        """


@runtime_checkable
class Backend(Protocol):
    """Kernels for one array library. Stateless as seen from outside: safe to call from many threads."""

    @property
    def name(self) -> str:
        """The array library, as in messages."""
        ...

    def attend(self, q: Array, k: Array, v: Array, step: Step, into: Partial | None) -> Partial:
        """Merge attention of q (\\*B, H, L_q, D) over k, v into a partial; may consume ``into``."""
        ...

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
        """This step's gradients of the inputs named in ``wrt``, added to those in ``into``.

        ``stats`` and ``delta`` are *global*, over all keys. ``out`` is the global output where the query
        side is at home, None where it travels. ``into`` may be consumed; a name that it lacks stands
        for zero.
        """
        ...

    def pack(self, arrays: Sequence[Array], where: str) -> Wire:
        """One contiguous buffer that holds all arrays, where the transport reads (`Transport.where`).

        In host memory they lie as `ringcore.wire` lays them: another rank may read them there.
        """
        ...

    def blank(self, specs: Sequence[ArraySpec], where: str) -> Wire:
        """A fresh buffer, where the transport writes, for arrays of these shapes and dtypes."""
        ...

    def unpack(self, wire: Wire, like: Array) -> tuple[Array, ...]:
        """The arrays in a wire, of ``like``'s library and device; C-contiguous, may share its memory."""
        ...


class Send(NamedTuple):
    """Send the bytes of ``buffer`` (flat uint8, contiguous) to rank ``to``."""

    buffer: Array
    to: int
    tag: int


class Recv(NamedTuple):
    """Receive into ``buffer`` (flat uint8, contiguous, writable) exactly its length from ``source``."""

    buffer: Array
    source: int
    tag: int


@dataclass
class Traffic:
    """What a transport has sent so far, counted where it happens."""

    messages: int = 0
    bytes: int = 0
    control_bytes: int = 0
    by_peer: dict[int, int] = field(default_factory=dict)

    def count(self, to: int, nbytes: int) -> None:
        """One array message of ``nbytes`` bytes leaves for rank ``to``."""
        self.messages += 1
        self.bytes += nbytes
        self.by_peer[to] = self.by_peer.get(to, 0) + nbytes


class Exchange(Protocol):
    """Messages in flight."""

    def test(self) -> bool:
        """Make progress; True when every send and receive of the exchange is complete."""
        ...

    def wait(self, timeout: float) -> None:
        """Return when complete.

        Raises
        ------
        PeerTimeout
            After ``timeout`` seconds without completion; its ``peer`` is a rank still waited for.
        PeerFailed
            If the peer, or the group, is known to have failed.
        """
        ...


@runtime_checkable
class Transport(Protocol):
    """Moves buffers between the ranks of one group; ``to`` and ``source`` may be any rank, also one's own."""

    rank: int
    size: int
    traffic: Traffic
    needs_polling: bool
    """True if messages move only while somebody calls ``Exchange.test`` (MPI)."""
    where: str
    """What it reads and writes: 'host' memory, 'device' memory, or device memory in 'stream' order."""
    cores: int | None
    """Cores that this rank may keep busy, where other ranks share the machine with it; None: all it finds."""
    status: str
    """What this rank is at, say "attention, hop 2 of 7"; set by its user, told to those who wait for it."""
    lock: AbstractContextManager[Any]
    """A `threading.RLock`, held during a collective call: messages of two threads would mix."""

    def exchange(self, sends: Sequence[Send], recvs: Sequence[Recv]) -> Exchange:
        """Post all receives, then all sends; return at once. Buffers belong to the transport until done.

        Messages between a pair of ranks with the same tag arrive in the order sent. Length 0 is fine.
        """
        ...

    def computing(self) -> AbstractContextManager[None]:
        """While it is open this rank computes: others that wait for it do not take it for dead."""
        ...

    def allgather_bytes(self, data: bytes, timeout: float) -> list[bytes]:
        """Everybody's ``data`` in rank order; for small control messages. Collective."""
        ...

    def split(self, color: int, key: int, timeout: float) -> Transport:
        """The group of the ranks that gave the same color, ordered by key, then rank. Collective."""
        ...

    def give_up(self, error: BaseException) -> None:
        """Tell the others that this rank cannot go on with the call: who waits for it gets `PeerFailed`.

        Returns soon. The transport is of no use afterwards.
        """
        ...

    def close(self) -> None:
        """Give back what this transport holds; what is the caller's stays. Collective."""
        ...


@runtime_checkable
class SharesMemory(Protocol):
    """What a transport may offer besides: ranks of a node read each other's blocks where they lie."""

    nodes: tuple[int, ...]
    """Each rank's node: those of the same number read each other's memory."""
    shares_from: int | None
    """Bytes for each rank that would else be sent within nodes, from which on it pays; None: never. The same
    on all ranks."""

    def publish(self, buffer: Array, timeout: float) -> dict[int, Array] | None:
        """Show a copy of a flat uint8 buffer, which may be empty, to the ranks of this node. Collective.

        Returns what they show, read-only, by rank, this rank's included; it stays as long as it is referred
        to. None, on all ranks of all nodes alike, if that cannot be done here.
        """
        ...


class Hidden(Protocol):
    """What lies between a feedforward layer's products; z, gate and dh of shape (L, F), biases (F,).

    z, gate and dh, of the accumulation dtype, may be consumed: results may be written over them.
    """

    def forward(self, z: Array, b_in: Array | None, gate: Array | None, b_gate: Array | None) -> Array:
        """``h = act(z + b_in) (gate + b_gate)``; without the factor where gate is None."""
        ...

    def backward(
        self, z: Array, b_in: Array | None, gate: Array | None, b_gate: Array | None, dh: Array
    ) -> tuple[Array, Array, Array | None]:
        """The same h, and the cotangents of z and gate for that of h, ``dh``; None where gate is None."""
        ...


@runtime_checkable
class FastFeedForward(Protocol):
    """What a backend may offer besides: feedforward in chunks that fit its caches, activations fused."""

    def feedforward_chunk(self, features: int, itemsize: int) -> int:
        """Tokens to work on at a time, for hidden arrays of so many features."""
        ...

    def hidden(self, activation: str) -> Hidden | None:
        """The steps between the products for a name of `ringcore.activation`; None: not offered."""
        ...
