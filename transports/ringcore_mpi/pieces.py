"""Long messages in pieces: MPI counts elements in 32 bits."""

from __future__ import annotations

PIECE = 2**30
"""Bytes in a piece: below 2^31 - 1, and a multiple of every page size."""


def pieces(nbytes: int, piece: int = PIECE) -> list[slice]:
    """The slices of a buffer that travel one by one; one, empty, for an empty buffer.

    Examples
    --------
    >>> pieces(5, piece=2)
    [slice(0, 2, None), slice(2, 4, None), slice(4, 5, None)]
    >>> pieces(0)
    [slice(0, 0, None)]
    """
    return [slice(start, min(start + piece, nbytes)) for start in range(0, max(nbytes, 1), piece)]
