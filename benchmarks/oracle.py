"""Some rows of attention and of its gradients in float64, by the definition: no tiles, no running maximum.

Rows of out and dq need nothing but their own scores, so they are taken from every head. A row of dk or dv
needs all queries of its head: head 0 alone, a band of queries at a time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from cases import CAUSAL, Array, Case, Inputs

ROWS, KEYS, BAND = 8, 8, 512
LIMIT = 1e-4
"""Largest error, as a share of the sum of the absolute values of what was added up, of a right answer."""


class Sum(NamedTuple):
    """A result, and the same sum over absolute values: what rounding errors are in proportion to."""

    value: Array
    size: Array

    def error(self, found: Array) -> float:
        """Largest error of an entry over its size; NaN counts as infinite."""
        worst = float(np.max(np.abs(found - self.value) / self.size))
        return worst if np.isfinite(worst) else np.inf


@dataclass(frozen=True)
class Oracle:
    """Rows ``rows`` of out and dq, (H, ROWS, D); of dk and dv of head 0 the rows ``keys``, (KEYS, D)."""

    rows: Array
    keys: Array
    out: Sum
    dq: Sum | None = None
    dk: Sum | None = None
    dv: Sum | None = None

    @property
    def what(self) -> str:
        """In words."""
        more = f" and dq, {len(self.keys)} rows of dk and dv of head 0" if self.dq else ""
        return f"{len(self.rows)} rows a head of out{more}, in float64"

    def errors(self, results: tuple[Array, ...]) -> dict[str, float]:
        """Of out, dq, dk, dv: see `Sum.error`."""
        found = dict(zip(("out", "dq", "dk", "dv"), results, strict=False))
        parts = {name: found[name][:, self.rows] for name in ("out", "dq") if name in found}
        parts |= {name: found[name][0, self.keys] for name in ("dk", "dv") if name in found}
        return {name: getattr(self, name).error(part) for name, part in parts.items()}


def weights(case: Case, q: Array, k: Array, rows: Array) -> Array:
    """softmax(q k^T / sqrt D) of some rows of one head, (len(rows), S)."""
    scores = q[rows] @ k.T / np.sqrt(case.dim)
    if case.mask == CAUSAL:
        scores[np.arange(case.length) > rows[:, None]] = -np.inf
    scores -= scores.max(axis=-1, keepdims=True)
    np.exp(scores, out=scores)
    scores /= scores.sum(axis=-1, keepdims=True)
    return scores


def of_rows(case: Case, head: list[Array], rows: Array) -> tuple[Array, Sum, Sum]:
    """``p, ds, out`` of some rows of one head."""
    q, k, v, dout = head
    p = weights(case, q, k, rows)
    out = Sum(p @ v, p @ np.abs(v))
    dp, delta = dout[rows] @ v.T, np.sum(dout[rows] * out.value, axis=-1, keepdims=True)
    scaled = p / np.sqrt(case.dim)
    return p, Sum(scaled * (dp - delta), scaled * (np.abs(dp) + np.abs(delta))), out


def oracle(case: Case, arrays: Inputs) -> Oracle:
    """What the results of ``case`` are held against."""
    rng = np.random.default_rng(case.length)
    last = case.length - 1
    rows = np.unique([0, last, *rng.integers(1, last, ROWS - 2)])
    keys = np.unique([0, last, *rng.integers(1, last, KEYS - 2)])
    outs, dqs = [], []
    for head in ([x[h].astype(np.float64) for x in arrays] for h in range(case.heads)):
        _, ds, out = of_rows(case, head, rows)
        outs.append(out)
        dqs.append(Sum(ds.value @ head[1], ds.size @ np.abs(head[1])))
    out, dq = (Sum(*map(np.stack, zip(*part, strict=True))) for part in (outs, dqs))
    if not case.backward:
        return Oracle(rows, keys, out)
    head = [x[0].astype(np.float64) for x in arrays]
    q, _, _, dout = head
    dk, dv = (Sum(*np.zeros((2, len(keys), case.dim))) for _ in range(2))
    for begin in range(0, case.length, BAND):
        band = np.arange(begin, min(begin + BAND, case.length))
        p, ds, _ = of_rows(case, head, band)
        for total, weight, x in ((dv, Sum(p, p), dout[band]), (dk, ds, q[band])):
            total.value[:] += weight.value[:, keys].T @ x
            total.size[:] += weight.size[:, keys].T @ np.abs(x)
    return Oracle(rows, keys, out, dq, dk, dv)
