"""Some rows of attention and of its gradients in float64, by the definition: no tiles, no running maximum.

A few queries, the probes, are looked at. The cotangent is zero but for their rows, so that a key's gradients
come from them alone, and cost no more than their outputs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ringcore.cli.bench.inputs import BLOCK, exact
from ringcore.cli.bench.rows import Row

Floats = NDArray[np.float64]


class Sum(NamedTuple):
    """A result, and the same sum over absolute values: what rounding errors are in proportion to."""

    value: Floats
    size: Floats


@dataclass(frozen=True)
class Reference:
    """What the answer is held against.

    Attributes
    ----------
    sums : dict
        ``out`` and ``dq`` of the probes, (H, n, D); ``dk`` and ``dv`` of the wanted keys, (G, m, D).
    largest : float
        Of the scores, computed with absolute values: it scales what rounding does to weights.
    """

    sums: dict[str, Sum]
    largest: float


def reference(row: Row, probes: NDArray[np.int64], keys: NDArray[np.int64]) -> Reference:
    """Out and dq of the queries at ``probes``; if backward, dk and dv of the keys at ``keys``, too."""
    G, R = row.kv_heads, row.heads // row.kv_heads
    scale = row.dim**-0.5

    def by_key_head(x: Floats) -> Floats:
        return x.reshape(G, R * len(probes), row.dim)

    q = by_key_head(exact(row, "q", probes))
    scores, largest = np.empty((G, q.shape[1], row.length)), 0.0
    for block in _blocks(row.length):
        k = exact(row, "k", block)
        s = scale * (q @ _t(k))
        largest = max(largest, float(np.max(scale * (np.abs(q) @ np.abs(_t(k))))))
        seen = row.mask.sees(probes[:, None], block[None, :])
        scores[..., block] = np.where(
            np.tile(np.broadcast_to(seen, (len(probes), len(block))), (R, 1)), s, -np.inf
        )
    p = np.exp(scores - np.max(scores, axis=-1, keepdims=True), out=scores)  # every query sees itself
    p /= np.sum(p, axis=-1, keepdims=True)
    out = _zero(q.shape)
    for block in _blocks(row.length):
        v = exact(row, "v", block)
        _add(out, p[..., block], v, p[..., block], np.abs(v))
    found = {"out": out}
    if row.backward:
        dout = by_key_head(exact(row, "dout", probes))
        found |= _backward(row, (q, dout, p), out, keys, scale)
    shape = (row.heads, len(probes), row.dim)
    sums = {n: Sum(*(x.reshape(shape) for x in s)) if n in ("out", "dq") else s for n, s in found.items()}
    return Reference(sums, largest)


def _backward(
    row: Row, side: tuple[Floats, Floats, Floats], out: Sum, keys: NDArray[np.int64], scale: float
) -> dict[str, Sum]:
    q, dout, p = side
    delta = np.sum(dout * out.value, axis=-1, keepdims=True)
    delta_size = np.sum(np.abs(dout) * out.size, axis=-1, keepdims=True)
    dq, dk, dv = _zero(q.shape), *(_zero((row.kv_heads, len(keys), row.dim)) for _ in range(2))
    for block in _blocks(row.length):
        k, v, weights = exact(row, "k", block), exact(row, "v", block), scale * p[..., block]
        ds = weights * (dout @ _t(v) - delta)
        size = weights * (np.abs(dout) @ np.abs(_t(v)) + delta_size)
        _add(dq, ds, k, size, np.abs(k))
        first, last = np.searchsorted(keys, (block[0], block[-1] + 1))
        mine, wanted = slice(first, last), keys[first:last] - block[0]
        part = Sum(dk.value[:, mine], dk.size[:, mine])
        _add(part, _t(ds[..., wanted]), q, _t(size[..., wanted]), np.abs(q))
        weights = _t(p[..., keys[mine]])
        _add(Sum(dv.value[:, mine], dv.size[:, mine]), weights, dout, weights, np.abs(dout))
    return {"dq": dq, "dk": dk, "dv": dv}


def _zero(shape: tuple[int, ...]) -> Sum:
    return Sum(np.zeros(shape), np.zeros(shape))


def _add(total: Sum, a: Floats, b: Floats, a_size: Floats, b_size: Floats) -> None:
    """Add ``a @ b`` to a sum."""
    value, size = total
    value += a @ b
    size += a_size @ b_size


def _blocks(length: int) -> list[NDArray[np.int64]]:
    return [np.arange(start, min(start + BLOCK, length)) for start in range(0, length, BLOCK)]


def _t(x: Any) -> Any:
    return np.swapaxes(x, -1, -2)
