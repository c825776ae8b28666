"""Attention over the whole sequence by its definition, in float64: what every result is compared with.

Written to be obviously right, with the whole score matrix in memory, and unlike the library in structure:
no tiles, no running maximum, no intervals, no ranks. Imports nothing but NumPy and its two sister modules,
which import nothing else either. Good for sequences of some thousands.

Letters as everywhere: B batch dims, H query heads, G key/value heads (H % G == 0), S_q and S_k sequence
lengths, D head dim, E value head dim. Arrays without a head axis, (S, D), are one head.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ringcore.testing.feedforward_oracle import feedforward, feedforward_vjp
from ringcore.testing.visibility import (
    Visibility,
    causal,
    dense,
    documents,
    full,
    global_tokens,
    keys,
    padding,
    prefix,
    window,
)

__all__ = [
    "Results",
    "Visibility",
    "attention",
    "attention_vjp",
    "causal",
    "conditions",
    "dense",
    "documents",
    "feedforward",
    "feedforward_vjp",
    "full",
    "global_tokens",
    "keys",
    "may_be_nonfinite",
    "must_be_nonfinite",
    "padding",
    "prefix",
    "reference",
    "window",
]

Floats = NDArray[Any]
Bools = NDArray[np.bool_]


class Results(NamedTuple):
    """Attention's results and gradients by name: values, condition numbers or sets; None where not asked.

    Shapes: ``out`` (\\*B, H, S_q, E), ``lse`` (\\*B, H, S_q), ``dq`` (\\*B, H, S_q, D), ``dk`` (\\*B, G,
    S_k, D), ``dv`` (\\*B, G, S_k, E).
    """

    out: Any = None
    lse: Any = None
    dq: Any = None
    dk: Any = None
    dv: Any = None


class _Inputs(NamedTuple):
    """Arrays with a head axis, K and V repeated to the H query heads."""

    q: Floats
    k: Floats
    v: Floats
    vis: Bools
    scale: Any
    groups: int
    flat: bool


def _prepare(q: Any, k: Any, v: Any, visible: Any, scale: float | None, dtype: Any) -> _Inputs:
    q, k, v = (np.asarray(x).astype(dtype) for x in (q, k, v))
    flat = q.ndim == 2
    if flat:
        q, k, v = q[None], k[None], v[None]
    groups = k.shape[-3]
    k, v = (np.repeat(x, q.shape[-3] // groups, axis=-3) for x in (k, v))
    S_q, S_k = q.shape[-2], k.shape[-2]
    if visible is None:
        visible = full()
    seen = visible.table(S_q, S_k) if isinstance(visible, Visibility) else np.asarray(visible, dtype=np.bool_)
    vis = np.broadcast_to(seen, (*q.shape[:-1], S_k))
    factor = 1 / math.sqrt(q.shape[-1]) if scale is None else scale
    return _Inputs(q, k, v, vis, q.dtype.type(factor), groups, flat)


def _t(x: Any) -> Any:
    return np.swapaxes(x, -1, -2)


def _seen_sum(weights: Floats, x: Floats, vis: Bools) -> Floats:
    """Sum over j of ``weights[i, j] * x[j]``, over the pairs of ``vis`` alone; weights are 0 elsewhere.

    A matrix product does it unless x holds NaN or inf: 0 * NaN would reach rows that do not see it.
    """
    if np.all(np.isfinite(x)):
        return np.asarray(weights @ x)
    rows = [
        np.sum(np.where(vis[..., i, :, None], weights[..., i, :, None] * x, 0), axis=-2)
        for i in range(weights.shape[-2])
    ]
    return np.stack(rows, axis=-2) if rows else np.asarray(weights @ x)


def _over_group(x: Floats, groups: int) -> Floats:
    """(\\*B, H, S, D) to (\\*B, G, S, D): the sum over the query heads that share a key head."""
    by_group = x.reshape(*x.shape[:-3], groups, x.shape[-3] // groups, *x.shape[-2:])
    return np.asarray(np.sum(by_group, axis=-3))


def _softmax(a: _Inputs) -> tuple[Floats, Floats]:
    """(p, lse) with p = softmax over the visible keys, 0 elsewhere; (0, -inf) for a query that sees none."""
    s = np.where(a.vis, a.scale * (a.q @ _t(a.k)), -np.inf)
    top = np.max(s, axis=-1, initial=-np.inf, keepdims=True)
    top = np.where(top == -np.inf, 0, top)
    e = np.where(a.vis, np.exp(s - top), 0)
    total = np.sum(e, axis=-1, keepdims=True)
    p = np.where(a.vis, e / np.where(total == 0, 1, total), 0)
    return p, (top + np.log(total))[..., 0]


def attention(
    q: Any, k: Any, v: Any, visible: Any = None, scale: float | None = None, *, dtype: Any = np.float64
) -> tuple[Floats, Floats, Floats]:
    """Attention over the whole sequence.

    Parameters
    ----------
    q, k, v : array_like, shapes (\\*B, H, S_q, D), (\\*B, G, S_k, D), (\\*B, G, S_k, E)
        In global order; any float dtype, also ml_dtypes' bfloat16. 2-d arrays are one head.
    visible : bool array or Visibility, optional
        Broadcastable to (\\*B, H, S_q, S_k); True where the query may see the key. All, if not given.
    scale : float, optional
        Factor of the scores; 1/sqrt(D) if not given.
    dtype : NumPy dtype
        The arithmetic. float32 gives dense attention in the arithmetic of a float32 ring, which
        `assert_no_growth` compares with.

    Returns
    -------
    out : array, (\\*B, H, S_q, E)
        0 for a query that sees no key.
    lse : array, (\\*B, H, S_q)
        Natural logarithm of the sum of exp(score) over visible keys; -inf for a query that sees none.
    p : array, (\\*B, H, S_q, S_k)
        The weights.

    Examples
    --------
    >>> import numpy as np
    >>> out, lse, p = attention(np.zeros((2, 1)), np.zeros((2, 1)), np.array([[1.0], [3.0]]), causal())
    >>> out[:, 0], np.exp(lse)
    (array([1., 2.]), array([1., 2.]))
    """
    a = _prepare(q, k, v, visible, scale, dtype)
    with np.errstate(all="ignore"):
        p, lse = _softmax(a)
        out = _seen_sum(p, a.v, a.vis)
    return (out[0], lse[0], p[0]) if a.flat else (out, lse, p)


def attention_vjp(
    q: Any,
    k: Any,
    v: Any,
    dout: Any,
    dlse: Any = None,
    visible: Any = None,
    scale: float | None = None,
    *,
    dtype: Any = np.float64,
) -> tuple[Floats, Floats, Floats]:
    """Gradient of ``sum(dout * out) + sum(dlse * lse)`` with respect to q, k and v.

    With dP = dout v^T and delta = rowsum(dout * out) - dlse: dS = p (dP - delta), dq = scale dS k,
    dk = scale dS^T q, dv = p^T dout; dk and dv are summed over the query heads that share them.

    Parameters
    ----------
    q, k, v, visible, scale, dtype
        As in `attention`.
    dout : array_like, (\\*B, H, S_q, E)
    dlse : array_like, (\\*B, H, S_q), optional
        Cotangent of lse; 0 if not given.

    Returns
    -------
    dq, dk, dv : arrays of the shapes of q, k, v
        A query that sees no key has dq = 0 and adds nothing to dk and dv, whatever its dout and dlse.
    """
    a = _prepare(q, k, v, visible, scale, dtype)
    g = np.asarray(dout).astype(dtype).reshape(*a.q.shape[:-1], a.v.shape[-1])
    h = np.zeros(1, dtype) if dlse is None else np.asarray(dlse).astype(dtype).reshape(a.q.shape[:-1])
    with np.errstate(all="ignore"):
        p, _ = _softmax(a)
        out = _seen_sum(p, a.v, a.vis)
        delta = np.sum(g * out, axis=-1) - h
        ds = np.where(a.vis, p * (g @ _t(a.v) - delta[..., None]), 0)
        dq = a.scale * _seen_sum(ds, a.k, a.vis)
        dk = a.scale * _over_group(_seen_sum(_t(ds), a.q, _t(a.vis)), a.groups)
        dv = _over_group(_seen_sum(_t(p), g, _t(a.vis)), a.groups)
    return (dq[0], dk[0], dv[0]) if a.flat else (dq, dk, dv)


def reference(
    q: Any,
    k: Any,
    v: Any,
    dout: Any = None,
    dlse: Any = None,
    visible: Any = None,
    scale: float | None = None,
    *,
    dtype: Any = np.float64,
) -> Results:
    """`attention` and, if ``dout`` is given, `attention_vjp` as one `Results`."""
    out, lse, _ = attention(q, k, v, visible, scale, dtype=dtype)
    if dout is None:
        return Results(out, lse)
    return Results(out, lse, *attention_vjp(q, k, v, dout, dlse, visible, scale, dtype=dtype))


def conditions(
    q: Any,
    k: Any,
    v: Any,
    dout: Any = None,
    dlse: Any = None,
    visible: Any = None,
    scale: float | None = None,
) -> Results:
    """Condition numbers: a backward-stable computation with unit roundoff u errs by a few ``u * condition``.

    Rounding perturbs a score s = scale q.k by up to a few u sigma, sigma = scale \\|q\\|\\|k\\|^T, hence
    the weight p = exp(s - lse) by the factor 1 + u (1 + sigma + sbar): its own rounding, that of its score,
    and that of lse, where sbar = sum(p sigma) is what the scores' errors do to lse. With

        w = p (1 + sigma + sbar) + 2^-102    on visible keys, 0 elsewhere

    (the last term stands for weights that underflow in float32), sums of absolute values give

        out   w \\|v\\| + sbar \\|out\\|
        lse   \\|lse\\| + sbar + 1
        dv    w^T \\|dout\\|
        dq    scale c \\|k\\|
        dk    scale c^T \\|q\\|
        c   = w (\\|dout\\|\\|v\\|^T + sum \\|dout\\|\\|out\\| + \\|dlse\\|) + p sum \\|dout\\| cond_out

    c bounds dS = p (dout v^T - sum dout out + dlse): p's error meets each of the three terms in absolute
    value, and out's own error reaches dS through delta = sum dout out - dlse. The cotangent of lse enters
    there and nowhere else: it adds p dlse to dS, so w \\|dlse\\| to c (p's error, and one rounding of
    delta, which w also covers). Where query heads share a key head, dk and dv are sums over these heads and
    so are their conditions.

    Rows that see no key have condition 0: their results are exact, 0 and -inf.

    Parameters and shapes are those of `attention_vjp`; without ``dout`` only ``out`` and ``lse`` are given.
    Each entry has the shape of the result it belongs to. Entries that a NaN or inf reaches are NaN or inf.
    """
    a = _prepare(q, k, v, visible, scale, np.float64)
    with np.errstate(all="ignore"):
        p, lse = _softmax(a)
        out = _seen_sum(p, a.v, a.vis)
        absq, absk, absv, size = np.abs(a.q), np.abs(a.k), np.abs(a.v), np.abs(a.scale)
        sigma = np.where(a.vis, size * (absq @ _t(absk)), 0)
        sbar = np.sum(np.where(a.vis, p * sigma, 0), axis=-1, keepdims=True)
        w = np.where(a.vis, p * (1 + sigma + sbar) + 2.0**-102, 0)
        c_out = _seen_sum(w, absv, a.vis) + sbar * np.abs(out)
        c_lse = np.where(np.any(a.vis, axis=-1), np.abs(lse) + sbar[..., 0] + 1, 0)
        if dout is None:
            return Results(c_out[0], c_lse[0]) if a.flat else Results(c_out, c_lse)
        g = np.abs(np.asarray(dout).astype(np.float64)).reshape(out.shape)
        h = np.abs(np.asarray(0 if dlse is None else dlse).astype(np.float64))
        h = np.broadcast_to(h.reshape(lse.shape) if h.ndim else h, lse.shape)
        terms = g @ _t(absv) + np.sum(g * np.abs(out), axis=-1, keepdims=True) + h[..., None]
        c = np.where(a.vis, w * terms + p * np.sum(g * c_out, axis=-1, keepdims=True), 0)
        c_dq = size * _seen_sum(c, absk, a.vis)
        c_dk = size * _over_group(_seen_sum(_t(c), absq, _t(a.vis)), a.groups)
        c_dv = _over_group(_seen_sum(_t(w), g, _t(a.vis)), a.groups)
    every = (c_out, c_lse, c_dq, c_dk, c_dv)
    return Results(*(x[0] for x in every)) if a.flat else Results(*every)


def may_be_nonfinite(
    q: Any,
    k: Any,
    v: Any,
    dout: Any = None,
    dlse: Any = None,
    visible: Any = None,
) -> Results:
    """Which rows a NaN or inf in the inputs can reach, given who sees whom; all others must be finite.

    A query's weights are touched by its own q and the keys it sees, its out also by their v, its dq also by
    its own dout and dlse; dv of a key by the weights and dout of the queries that see it, dk by their dq's.
    A query that sees no key is touched by nothing and touches nothing.

    Returns
    -------
    Results
        Bools of the results' shapes with a last axis of length 1 in place of the head dim (``lse``: its own
        shape).
    """
    a = _prepare(q, k, v, visible, 1.0, np.float64)

    def bad(x: Floats) -> Bools:
        return np.asarray(~np.all(np.isfinite(x), axis=-1))

    def over_keys(hit: Bools) -> Bools:
        return np.asarray(np.any(a.vis & hit[..., None, :], axis=-1))

    def over_queries(hit: Bools) -> Bools:
        by_head = np.any(a.vis & hit[..., :, None], axis=-2)
        by_group = by_head.reshape(
            *by_head.shape[:-2], a.groups, by_head.shape[-2] // a.groups, by_head.shape[-1]
        )
        return np.asarray(np.any(by_group, axis=-2))

    sees = np.any(a.vis, axis=-1)
    weights = sees & (bad(a.q) | over_keys(bad(a.k)))
    out = weights | over_keys(bad(a.v))
    if dout is None:
        found = [out[..., None], weights]
    else:
        g = bad(np.asarray(dout).astype(np.float64).reshape(*a.q.shape[:-1], a.v.shape[-1]))
        h = np.zeros(g.shape) if dlse is None else np.asarray(dlse).astype(np.float64).reshape(g.shape)
        dq = sees & (out | g | ~np.isfinite(h))
        dk, dv = over_queries(dq), over_queries(weights | g)
        found = [out[..., None], weights, dq[..., None], dk[..., None], dv[..., None]]
    return Results(*(x[0] if a.flat else x for x in found))


def must_be_nonfinite(
    q: Any,
    k: Any,
    v: Any,
    dout: Any = None,
    dlse: Any = None,
    visible: Any = None,
    scale: float | None = None,
) -> Results:
    """Which numbers a NaN or inf in the inputs does reach: whoever has a finite number there has lost it.

    Those that dense attention finds to be NaN or inf. Pairs of a weight below 2^-100 are left out: such
    a weight may be 0 in another arithmetic, and there need be no 0 * inf. So an infinite score of the sign
    that hides its key demands nothing.

    Returns
    -------
    Results
        Bools of the results' shapes; all of them in rows of `may_be_nonfinite`.
    """
    _, _, p = attention(q, k, v, visible, scale)
    vis = _prepare(q, k, v, visible, scale, np.float64).vis
    weighty = vis.reshape(p.shape) & ~(p < 2.0**-100)  # NaN is not small
    found = reference(q, k, v, dout, dlse, weighty, scale)
    lost = Results(*(None if x is None else ~np.isfinite(x) for x in found))
    return lost._replace(lse=lost.lse & np.any(weighty, axis=-1))
