"""Memory that the other ranks of a node read where it lies.

An anonymous file of Linux (memfd) that others open through /proc: it has no name, so nothing can be left
behind, and the kernel takes it back when the last process that maps it ends, however it ends. MPI-3's shared
windows would do the same, but for a collective call that blocks, and files in /dev/shm that outlive a kill.
"""

from __future__ import annotations

import mmap
import os
import struct
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import numpy as np

Buffer = np.ndarray[Any, np.dtype[np.uint8]]

_CARD = struct.Struct("<qqqqq")  # process, file descriptor, device and inode by which to know the file, bytes


def show(
    buffer: Buffer, rank: int, nodes: Sequence[int], gather: Callable[[bytes], list[bytes]]
) -> dict[int, Buffer] | None:
    """Show a copy of a buffer to all ranks of this node. Collective.

    Parameters
    ----------
    buffer : flat uint8 array
    rank : int
        This rank.
    nodes : sequence of int
        Each rank's node.
    gather : callable
        Everybody's bytes, in rank order.

    Returns
    -------
    dict of rank -> flat uint8 array, read-only, or None
        What the ranks of this node show, this one included. None, on all ranks alike, if the ranks of a node
        cannot read each other's memory: where there is no memfd, no /proc, or each has a /proc of its own.
    """
    shown: dict[int, Buffer] = {}
    file = -1
    try:
        with suppress(OSError, AttributeError):  # AttributeError: not on macOS
            file = os.memfd_create("ringcore")
            _fill(file, buffer)
        found = os.fstat(file) if file >= 0 else None
        card = (os.getpid(), file, found.st_dev, found.st_ino, buffer.shape[0]) if found else (0, -1, 0, 0, 0)
        for other, note in enumerate(gather(_CARD.pack(*card))):
            if nodes[other] == nodes[rank]:
                with suppress(OSError, ValueError):
                    shown[other] = _opened(*_CARD.unpack(note))
        all_there = len(shown) == sum(node == nodes[rank] for node in nodes)
        # Also tells that everybody has opened the file, which may so be closed.
        return shown if all(note == b"\1" for note in gather(bytes([all_there]))) else None
    finally:
        if file >= 0:
            os.close(file)


def _fill(file: int, buffer: Buffer) -> None:
    """Written, not mapped: where memory is short this fails with an error, a mapping with a signal."""
    rest = memoryview(buffer)  # type: ignore[arg-type] # NumPy's stubs before Python 3.12
    while rest:
        rest = rest[os.write(file, rest) :]


def _opened(process: int, file: int, device: int, inode: int, size: int) -> Buffer:
    """Another process's file, if it is that one."""
    opened = os.open(f"/proc/{process}/fd/{file}", os.O_RDWR | os.O_CLOEXEC)
    try:
        found = os.fstat(opened)
        if (found.st_dev, found.st_ino, found.st_size) != (device, inode, size):
            raise ValueError("another file: /proc is not that of the other process")
        # Writable, although nobody writes: network cards refuse to read from a mapping that is not.
        view = np.frombuffer(mmap.mmap(opened, size) if size else b"", np.uint8)
        view.flags.writeable = False
        return view
    finally:
        os.close(opened)
