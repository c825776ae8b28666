"""What every rank does: its shard of the one attention call, and what that says about its positions.

This is the only module that knows of ranks. Nothing here depends on how they are connected.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

import ringcore as rc
from ringcore.cli.genome import encode
from ringcore.cli.genome.fasta import AMBIGUOUS
from ringcore.cli.genome.repeats import same_context
from ringcore.cli.genome.settings import Settings


@dataclass(frozen=True)
class Echo:
    """What attention says about each position of a genome.

    Attributes
    ----------
    bits : array of float32, shape (N,)
        Information needed to name each base, given what follows the copies of its context; NaN where
        the base is ambiguous.
    copies : array of float32, shape (N + 1,)
        Soft number of other places with the same context.
    partner : array of int64, shape (N + 1,)
        The key with the same context, where there is a sure one; else -1.
    """

    bits: NDArray[np.float32]
    copies: NDArray[np.float32]
    partner: NDArray[np.int64]


def scores(bases: int) -> int:
    """How many query-key pairs the attention over N bases has."""
    return 2 * (bases + 1) ** 2


def genome_rank(
    ring: rc.Ring, codes: encode.Codes, settings: Settings, meter: rc.Meter | None = None
) -> Echo | None:
    """One rank's part of the analysis.

    Parameters
    ----------
    ring : Ring
        The ranks; each holds its share of the queries and keys, and one byte a base of the genome.
    codes : array of uint8, shape (N,)
        The whole genome, the same on all ranks.
    settings : Settings
        Context, sharpness and thresholds.
    meter : Meter, optional
        Counts the scores as they are computed.

    Returns
    -------
    Echo or None
        On rank 0 the result for all positions; None elsewhere.

    Notes
    -----
    Collective. float32; a rank holds 4 (4w + 4 + bits) bytes for each of its 2 (N + 1) / P keys.
    """
    positions = codes.size + 1
    w, b = settings.context, settings.sharpness
    layout = rc.Layout.contiguous(length=positions, ranks=ring.size)
    k_layout = rc.Layout.contiguous(length=2 * positions, ranks=ring.size)
    own, own_keys = layout.ranges(ring.rank), k_layout.ranges(ring.rank)
    start, stop = (own[0].start, own[0].stop) if own else (0, 0)
    k_start, k_stop = (own_keys[0].start, own_keys[0].stop) if own_keys else (0, 0)

    strands = encode.both_strands(codes)
    # A position is no copy of itself, nor of one whose context overlaps its own on the same strand.
    mask = ~(rc.window(w - 1, w - 1) & rc.keys(0, positions))
    out, lse = rc.attention(
        np.float32(b) * encode.contexts(codes, start, stop, w),
        encode.keys(strands, k_start, k_stop, w),
        encode.values(strands, k_start, k_stop),
        ring=ring, layout=layout, k_layout=k_layout, mask=mask, scale=1.0, return_lse=True, meter=meter,
    )  # fmt: skip

    copies = np.exp(lse.astype(np.float64) - b * w)
    following = strands[start:stop]
    bits = bits_per_base(out[:, :4], copies, following, settings.prior_mass)
    partner = sure_partners(strands, np.arange(start, stop), out[:, 4:], copies, settings)
    parts = (bits, copies.astype(np.float32), partner)
    bits, soft, partner = (cast(Any, ring.gather(part, layout, root=0, axis=0)) for part in parts)
    return Echo(bits[: codes.size], soft, partner) if ring.rank == 0 else None


def bits_per_base(
    following: NDArray[np.float32], copies: NDArray[np.float64], truth: encode.Codes, prior_mass: float
) -> NDArray[np.float32]:
    """-log2 of the probability given to each true base; NaN where it is ambiguous or missing.

    Parameters
    ----------
    following : array, shape (n, 4)
        Which bases follow the copies, weighted by their likeness; may sum to less than 1.
    copies : array, shape (n,)
        Soft number of copies.
    truth : array of uint8, shape (n,)
        The bases.
    prior_mass : float
        Weight, in copies, of a uniform distribution. With no copy it leaves 2 bits a base; with one
        exact copy that goes on in the same way, 0.011 bits (prior mass 0.01).
    """
    mass = following.astype(np.float64) * copies[:, None]
    known = truth < AMBIGUOUS
    right = np.take_along_axis(mass, np.where(known, truth, 0)[:, None].astype(np.int64), axis=1)[:, 0]
    probability = (right + prior_mass / 4) / (mass.sum(axis=1) + prior_mass)
    return np.where(known, -np.log2(probability), np.nan).astype(np.float32)


def sure_partners(
    strands: encode.Codes,
    positions: NDArray[np.int64],
    bits: NDArray[np.float32],
    copies: NDArray[np.float64],
    settings: Settings,
) -> NDArray[np.int64]:
    """The key that attention names for each position, -1 where it names none or a false one.

    A named key counts only if the query saw it and its context is the query's, base by base: a mean over
    several copies may spell an index that none of them has.
    """
    index = encode.decode(bits, settings.least_sign)
    named = np.where((copies > settings.least_copies) & (index < strands.size), index, -1)
    too_near = (named < strands.size // 2) & (np.abs(named - positions) < settings.context)  # it was not seen
    asked = np.flatnonzero((named >= 0) & ~too_near)
    named[too_near] = -1
    true = same_context(strands, positions[asked], named[asked], settings.context)
    named[asked[~true]] = -1
    return named
