"""Everybody's bytes on every rank, in log2 P rounds of messages between pairs.

MPI's own allgather would do the same but not tell whom it waits for.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ringcore.errors import RingError

if TYPE_CHECKING:
    from ringcore_mpi.post import Post


class Gathering:
    """One allgather under way, from the view of one rank.

    After round k a rank holds the notes of the 2^k ranks from its own number on, around the ring; it then
    sends them 2^k ranks down and gets as many from 2^k ranks up: J. Bruck et al., *Efficient Algorithms for
    All-to-All Communications in Multiport Message-Passing Systems*, 1997.

    Parameters
    ----------
    post : Post
        For letters of gatherings only; those of a pair arrive in order.
    rank, size : int
    number : int
        How many gatherings this rank has begun before; a letter of another one means ranks out of step.
    note : bytes
        This rank's own.
    """

    def __init__(self, post: Post, rank: int, size: int, number: int, note: bytes) -> None:
        self._post = post
        self._rank, self._size, self._number = rank, size, number
        self._notes = [note]
        self._begin_round()

    def pending(self) -> int | None:
        """Go on as far as possible; the rank waited for, None when all is here and all letters are gone."""
        while self._distance < self._size:
            letter = self._post.take(self._source)
            if letter is None:
                return self._source
            self._notes += self._opened(letter)
            self._begin_round()
        return self._post.unsent()

    def notes(self) -> list[bytes]:
        """Everybody's notes in rank order."""
        return [self._notes[(rank - self._rank) % self._size] for rank in range(self._size)]

    def _begin_round(self) -> None:
        self._distance = len(self._notes)  # 1, 2, 4, ... until nobody is left
        if self._distance < self._size:
            self._source = (self._rank + self._distance) % self._size
            wanted = self._notes[: self._size - self._distance]
            self._post.send(sealed(self._number, wanted), (self._rank - self._distance) % self._size)

    def _opened(self, letter: bytes) -> list[bytes]:
        number, notes = opened(letter)
        if number != self._number:
            raise RingError(
                f"all ranks must make the same collective calls. Rank {self._rank} is at comparison "
                f"{self._number} of the ring, rank {self._source} at {number}. Look for a call, or an early "
                "return, that depends on the rank."
            )
        return notes


def sealed(number: int, notes: Sequence[bytes]) -> bytes:
    """A letter that holds notes: number, count, lengths, then the notes themselves."""
    head = struct.pack(f"<QQ{len(notes)}Q", number, len(notes), *map(len, notes))
    return b"".join([head, *notes])


def opened(letter: bytes) -> tuple[int, list[bytes]]:
    """The inverse of `sealed`.

    Examples
    --------
    >>> opened(sealed(3, [b"one", b"", b"two"]))
    (3, [b'one', b'', b'two'])
    """
    number, count = struct.unpack_from("<QQ", letter)
    lengths = struct.unpack_from(f"<{count}Q", letter, 16)
    notes, start = [], 16 + 8 * count
    for length in lengths:
        notes.append(letter[start : start + length])
        start += length
    return number, notes
