"""What every rank does: its shard of the one attention call, and what that says about its positions.

Nothing here depends on how the ranks are connected.
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
from ringcore.cli.genome.shares import Shares, span

_CHECKED_AT_A_TIME = 2**16


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
    ring: rc.Ring, codes: encode.Codes | None, bases: int, settings: Settings, meter: rc.Meter | None = None
) -> Echo | None:
    """One rank's part of the analysis.

    Parameters
    ----------
    ring : Ring
        The ranks; each holds its share of the queries and keys, and of the genome what these are made from.
    codes : array of uint8, shape (N,)
        The whole genome, on rank 0; ignored on the other ranks, which may pass None.
    bases : int
        N.
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
    w, b, positions = settings.context, settings.sharpness, bases + 1
    shares = Shares(bases, ring.size, w)
    strands = None if ring.rank or codes is None else encode.both_strands(codes)
    mine = ring.scatter(None if strands is None else shares.cut(strands), shares.codes, axis=0)
    queries, forward, reverse = shares.parted(mine, ring.rank)
    (start, stop), (first_key, _) = span(shares.queries, ring.rank), span(shares.keys, ring.rank)

    # A position is no copy of itself, nor of one whose context overlaps its own on the same strand.
    mask = ~(rc.window(w - 1, w - 1) & rc.keys(0, positions))
    out, lse = rc.attention(
        np.float32(b) * encode.contexts(queries, w),
        encode.keys(forward, reverse, w),
        encode.values(np.concatenate([forward[w:], reverse[w:]]), first_key, 2 * positions),
        ring=ring, layout=shares.queries, k_layout=shares.keys, mask=mask, scale=1.0,
        return_lse=True, meter=meter,
    )  # fmt: skip

    copies = np.exp(lse.astype(np.float64) - b * w)
    bits = bits_per_base(out[:, :4], copies, queries[w:], settings.prior_mass)
    names = named_partners(out[:, 4:], copies, np.arange(start, stop), positions, settings)
    parts = (bits, copies.astype(np.float32), names)
    bits, soft, names = (cast(Any, ring.gather(part, shares.queries, axis=0)) for part in parts)
    if strands is None:
        return None
    return Echo(bits[:bases], soft, true_partners(strands, names, w))


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


def named_partners(
    bits: NDArray[np.float32],
    copies: NDArray[np.float64],
    place: NDArray[np.int64],
    positions: int,
    settings: Settings,
) -> NDArray[np.int64]:
    """The key that attention names for each query; -1 where it is unsure, or the query did not see that key.

    Parameters
    ----------
    bits : array, shape (n, bits)
        Mean signs.
    copies : array, shape (n,)
        Soft number of copies.
    place : array of int64, shape (n,)
        The queries' positions.
    positions : int
        N + 1.
    settings : Settings
    """
    index = encode.decode(bits, settings.least_sign)
    named = np.where((copies > settings.least_copies) & (index < 2 * positions), index, -1)
    too_near = (named < positions) & (np.abs(named - place) < settings.context)
    named[too_near] = -1
    return named


def true_partners(strands: encode.Codes, names: NDArray[np.int64], width: int) -> NDArray[np.int64]:
    """The named keys whose context is the query's, base by base; -1 for all others.

    A mean over several copies may spell an index that none of them has.
    """
    partner = names.copy()
    asked = np.flatnonzero(names >= 0)
    for begin in range(0, asked.size, _CHECKED_AT_A_TIME):
        these = asked[begin : begin + _CHECKED_AT_A_TIME]
        partner[these[~same_context(strands, these, names[these], width)]] = -1
    return partner
