"""softmax(q k^T) v in NumPy, one head at a time: the whole score matrix of a head, worked on in place."""

from __future__ import annotations

from typing import Any

import numpy as np
from cases import CAUSAL, Array, Case, Inputs

from rivals.rival import Call, Rival


def softmax(q: Array, k: Array, future: Array | None) -> Array:
    s = (q * np.float32(q.shape[-1] ** -0.5)) @ k.T
    if future is not None:
        s[future] = -np.inf
    s -= s.max(axis=-1, keepdims=True)
    np.exp(s, out=s)
    s /= s.sum(axis=-1, keepdims=True)
    return s


def gradients(p: Array, head: tuple[Array, ...], out: Array) -> tuple[Array, Array, Array]:
    q, k, v, dout = head
    dv = p.T @ dout
    ds = dout @ v.T
    ds -= np.sum(dout * out, axis=-1, keepdims=True)
    ds *= p
    ds *= np.float32(q.shape[-1] ** -0.5)
    return ds @ k, ds.T @ q, dv


def prepare(case: Case, arrays: Inputs, setting: Any) -> Call:
    above = np.triu(np.ones((case.length, case.length), bool), 1) if case.mask == CAUSAL else None

    def run() -> list[tuple[Array, ...]]:
        results: list[tuple[Array, ...]] = []
        for head in zip(*arrays, strict=True):
            q, k, v, _ = head
            p = softmax(q, k, above)
            out = p @ v
            results.append((out, *gradients(p, head, out)) if case.backward else (out,))
        return results

    return Call(run, lambda results: tuple(np.stack(part) for part in zip(*results, strict=True)))


def rival(cores: int) -> Rival:
    how = f"softmax(q k^T) v and its gradient, a head at a time, in place; BLAS with {cores} threads"
    return Rival("naive NumPy", np.__version__, how, prepare, long=False)
