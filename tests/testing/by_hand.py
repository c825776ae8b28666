"""Attention in nested loops over single numbers, for tiny shapes: the reference of the reference."""

from __future__ import annotations

import math

import numpy as np


def attention(q, k, v, visible, scale):
    """(out, lse) of arrays (B, H, S, D): each query a softmax over the list of the keys that it sees."""
    B, H, S_q, D = q.shape
    G, S_k, E = k.shape[1], k.shape[2], v.shape[3]
    out, lse = np.zeros((B, H, S_q, E)), np.full((B, H, S_q), -np.inf)
    for b in range(B):
        for h in range(H):
            g = h * G // H
            for i in range(S_q):
                seen = [j for j in range(S_k) if visible[b, h, i, j]]
                if not seen:
                    continue
                scores = {j: scale * sum(q[b, h, i, d] * k[b, g, j, d] for d in range(D)) for j in seen}
                total = sum(math.exp(s) for s in scores.values())
                lse[b, h, i] = math.log(total)
                for e in range(E):
                    out[b, h, i, e] = sum(math.exp(scores[j]) * v[b, g, j, e] for j in seen) / total
    return out, lse


def gradient(value, x, step=1e-6):
    """Central differences of a scalar function of an array."""
    grad = np.zeros_like(x)
    for index in np.ndindex(x.shape):
        up, down = x.copy(), x.copy()
        up[index] += step
        down[index] -= step
        grad[index] = (value(up) - value(down)) / (2 * step)
    return grad
