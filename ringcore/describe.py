"""Texts for people: what a mask makes of a layout."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ringcore.layout import Layout
from ringcore.step import lower

if TYPE_CHECKING:
    from ringcore.mask import Mask

_MOST_RANKS = 64


def visible_pairs(mask: Mask, q_layout: Layout, k_layout: Layout) -> np.ndarray:
    """Query-key pairs that the mask's intervals leave visible, int (P, P): query rank x key rank.

    Masks with batch rows count all rows of the batch; dense arrays, known to their rank only, are left out.
    """
    pairs = np.zeros((q_layout.ranks, k_layout.ranks), np.int64)
    for q_rank in range(q_layout.ranks):
        seen = lower(mask, q_layout.positions(q_rank), k_layout.length)
        for k_rank in range(k_layout.ranks):
            pairs[q_rank, k_rank] = (k_layout.below(k_rank, seen.hi) - k_layout.below(k_rank, seen.lo)).sum()
    return pairs


def table(mask: Mask, q_layout: Layout, k_layout: Layout) -> str:
    """See `Mask.describe`."""
    if max(q_layout.ranks, k_layout.ranks) > _MOST_RANKS:
        work = np.asarray([_work(mask, q_layout, rank, k_layout.length) for rank in range(q_layout.ranks)])
        mean = work.mean() or 1.0
        return (
            f"{mask!r}: {q_layout.ranks} x {k_layout.ranks} ranks, more than {_MOST_RANKS}: no table\n"
            f"work per rank over the mean: {work.min() / mean:.2f} to {work.max() / mean:.2f}"
        )
    pairs = visible_pairs(mask, q_layout, k_layout)
    work = pairs.sum(axis=1)
    mean = work.mean() or 1.0
    lines = [f"{mask!r}: rows are query ranks, columns key ranks (. none, + some, # all)"]
    rows_of_batch = int(np.prod(mask.lead)) if mask.lead else 1
    for q_rank in range(q_layout.ranks):
        cells = ""
        for k_rank in range(k_layout.ranks):
            whole = q_layout.count(q_rank) * k_layout.count(k_rank) * rows_of_batch
            seen = pairs[q_rank, k_rank]
            cells += "." if seen == 0 else "#" if seen == whole else "+"
        lines.append(f"{q_rank:4d} {cells}  work {work[q_rank] / mean:.2f}")
    return "\n".join(lines)


def _work(mask: Mask, q_layout: Layout, rank: int, S_k: int) -> int:
    seen = lower(mask, q_layout.positions(rank), S_k)
    return int((seen.hi - seen.lo).sum())
