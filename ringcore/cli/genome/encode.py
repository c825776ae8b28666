"""A genome as attention's inputs: contexts as one-hot vectors, positions as signs.

Positions are places between bases, 0..N. The *context* of position i are the w bases before it, the
base that *follows* is base i; position N has a context and nothing that follows. Keys are the N + 1
positions of the forward strand, then the N + 1 of the reverse complement, in one sequence of
2 (N + 1); queries are the forward positions. Everything is built from a `stretch` of a strand, so a rank
never holds more than its own.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ringcore.cli.genome.fasta import AMBIGUOUS

Codes = NDArray[np.uint8]
Floats = NDArray[np.float32]

_ONE_HOT = np.eye(5, 4, dtype=np.float32)  # the last row, of an ambiguous base, is zero


def reverse_complement(codes: Codes) -> Codes:
    """The other strand, read in its own direction.

    Examples
    --------
    >>> reverse_complement(np.array([0, 0, 1, 4], np.uint8))
    array([4, 2, 3, 3], dtype=uint8)
    """
    flipped = codes[::-1]
    return np.where(flipped < AMBIGUOUS, 3 - flipped, AMBIGUOUS).astype(np.uint8)


def both_strands(codes: Codes) -> Codes:
    """Forward strand, a gap, reverse complement, a gap: shape (2 (N + 1),).

    Key j's following base is element j, so its context ends before element j, on either strand.
    """
    gap = np.array([AMBIGUOUS], np.uint8)
    return np.concatenate([codes, gap, reverse_complement(codes), gap])


def stretch(strand: Codes, start: int, stop: int, width: int) -> Codes:
    """The bases that positions start..stop-1 of one strand need: (stop - start + width,), or none if empty.

    First the ``width`` bases before the first position, ambiguous ones where there is none; then the base
    that follows each position.

    Examples
    --------
    >>> stretch(np.array([0, 1, 2, 3, 4], np.uint8), 1, 3, width=2)
    array([4, 0, 1, 2], dtype=uint8)
    """
    if start >= stop:
        return strand[:0]
    first = start - width
    return np.concatenate([np.full(max(0, -first), AMBIGUOUS, np.uint8), strand[max(0, first) : stop]])


def key_stretches(strands: Codes, start: int, stop: int, width: int) -> tuple[Codes, Codes]:
    """The stretches for keys start..stop-1, on the forward and on the reverse strand; one may be empty.

    The strands know nothing of each other: a context does not reach from one into the other.
    """
    half = strands.size // 2
    middle = min(max(half, start), stop)
    return (
        stretch(strands[:half], start, middle, width),
        stretch(strands[half:], middle - half, stop - half, width),
    )


def contexts(codes: Codes, width: int) -> Floats:
    """One-hot of the bases before each position of a stretch of n positions: (n, 4 width).

    Column 4 t + c of position i is 1 if base ``i - width + t`` is c. An ambiguous base is four zeros.
    """
    count = max(0, codes.size - width)
    hot = np.empty((count, width, 4), np.float32)
    for t in range(width):
        hot[:, t] = _ONE_HOT[codes[t : t + count]]
    return hot.reshape(count, 4 * width)


def keys(forward: Codes, reverse: Codes, width: int) -> Floats:
    """Contexts of the keys of a forward and a reverse stretch: (n, 4 width)."""
    return np.concatenate([contexts(forward, width), contexts(reverse, width)])


def index_bits(start: int, stop: int, count: int) -> Floats:
    """The numbers start..stop-1 in binary, lowest bit first, as -1 and +1: (stop - start, count).

    Signs survive averaging: if one key holds more than half of a query's weight, the mean of every
    bit has that key's sign.

    Examples
    --------
    >>> index_bits(2, 4, 2)
    array([[-1.,  1.],
           [ 1.,  1.]], dtype=float32)
    """
    index = np.arange(start, stop, dtype=np.int64)[:, None]
    return np.where((index >> np.arange(count)) & 1, np.float32(1), np.float32(-1))


def bits_needed(keys: int) -> int:
    """How many bits number this many keys, rounded up to a multiple of 4: products like such widths.

    Examples
    --------
    >>> bits_needed(16), bits_needed(17), bits_needed(308_958)
    (4, 8, 20)
    """
    return max(4, -(-(keys - 1).bit_length() // 4) * 4)


def values(following: Codes, start: int, keys: int) -> Floats:
    """Of keys ``start`` and so on: following base as one-hot, then the key's own index as signs.

    Shape (n, 4 + bits), with as many bits as number all ``keys`` keys.
    """
    index = index_bits(start, start + following.size, bits_needed(keys))
    return np.concatenate([_ONE_HOT[following], index], axis=1)


def decode(bits: Floats, least_sign: float) -> NDArray[np.int64]:
    """The key index that mean bits (n, bits) name, -1 where one of them is nearer to 0 than ``least_sign``.

    Examples
    --------
    >>> decode(np.array([[0.9, -0.8], [0.9, -0.05]], np.float32), least_sign=0.1)
    array([ 1, -1])
    """
    index = ((bits > 0).astype(np.int64) << np.arange(bits.shape[1])).sum(axis=1)
    return np.where((np.abs(bits) >= least_sign).all(axis=1), index, -1)
