"""Whether a row's answer is right: before it is timed, some rows of it are held against float64."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

import ringcore as rc
from ringcore.cli.bench import inputs
from ringcore.cli.bench.reference import Reference, reference
from ringcore.cli.bench.rows import Row
from ringcore.dtypes import accumulation_name, unit_roundoff
from ringcore.testing import from_numpy, half_ulp, to_numpy

PROBES, KEYS = 8, 64
FACTOR = 8.0


def probes(length: int) -> NDArray[np.int64]:
    """The queries that are looked at: the first, the last, and some between; the same on every rank."""
    between = np.random.default_rng(length).integers(0, length, PROBES - 2)
    return np.unique([0, length - 1, *between])


def faults(row: Row, ring: rc.Ring, arrays: dict[str, Any]) -> list[str]:
    """What is wrong with this rank's part of the answer, in words. Collective: the first call of attention.

    Parameters
    ----------
    row : Row
    ring : Ring
    arrays : dict
        This rank's ``q``, ``k`` and ``v``.
    """
    layout = row.layout(ring.size)
    mine, all_probes = layout.positions(ring.rank), probes(row.length)
    here = np.flatnonzero(np.isin(mine, all_probes))
    options: dict[str, Any] = {"ring": ring, "layout": layout, "mask": row.mask.mask(row.length)}
    q, k, v = (arrays[name] for name in "qkv")
    found = {}
    if row.backward:
        found["out"], pullback = rc.attention_vjp(q, k, v, **options)
        cotangent = np.zeros((row.heads, len(mine), row.dim), np.float32)
        cotangent[:, here] = inputs.drawn(row, "dout", mine[here])
        found |= zip(
            ("dq", "dk", "dv"), pullback(from_numpy(row.library.xp, cotangent, row.dtype)), strict=True
        )
    else:
        found["out"] = rc.attention(q, k, v, **options)
    keys = np.unique(np.linspace(0, len(mine) - 1, min(KEYS, len(mine))).astype(np.int64))
    want = reference(row, all_probes, mine[keys])
    of_probes = np.flatnonzero(np.isin(all_probes, mine))
    texts = []
    for name, x in found.items():
        at, rows = (here, of_probes) if name in ("out", "dq") else (keys, np.arange(len(keys)))
        texts += _faults(row, name, to_numpy(x)[:, at], want, rows, mine[at])
    return texts


def allowed(row: Row, largest: float) -> float:
    """The largest error of a sound computation, in units of the sum of absolute values; before rounding.

    The contract's 8 u cond: with w <= p (1 + 2 sigma), and the error of out in delta, cond of each result is
    at most 2 + 5 sigma times that sum, sigma the largest score of absolute values. See docs/contract.md.
    """
    return FACTOR * unit_roundoff(accumulation_name(row.dtype)) * (2 + 5 * largest)


def _faults(
    row: Row, name: str, got: Any, want: Reference, rows: NDArray[np.intp], positions: NDArray[np.int64]
) -> list[str]:
    value, size = (x[:, rows] for x in want.sums[name])
    bound = allowed(row, want.largest) * size + half_ulp(value, row.dtype)
    with np.errstate(invalid="ignore"):
        wrong = ~(np.abs(got - value) <= bound)  # NaN is wrong
    if not np.any(wrong):
        return []
    with np.errstate(invalid="ignore", divide="ignore"):
        excess = np.where(wrong, np.nan_to_num(np.abs(got - value) / bound, nan=np.inf, posinf=np.inf), 0)
    head, i, d = (int(x) for x in np.unravel_index(np.argmax(excess), excess.shape))
    text = (
        f"{name} is wrong: {np.sum(wrong)} of {wrong.size} numbers looked at are beyond the bound. The worst "
        f"is at head {head}, position {positions[i]}, column {d}: got {got[head, i, d]:.9g}, "
        f"want {value[head, i, d]:.9g} within {bound[head, i, d]:.1e}"
    )
    return [text]
