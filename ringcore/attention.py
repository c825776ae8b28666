"""The public face of attention: forward, vjp, and backward from saved arrays."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from typing import Any, NamedTuple, TypeVar

import numpy as np
from array_api_compat import array_namespace

from ringcore.agree import agree
from ringcore.arguments import check_byte_order, of_one_library
from ringcore.dtypes import accumulation_dtype, accumulation_name, dtype_name
from ringcore.layout import Layout
from ringcore.mask import Mask
from ringcore.meter import Meter
from ringcore.partial import finish
from ringcore.passes import backward, forward
from ringcore.problem import Options, Problem, prepare, ring_of
from ringcore.protocols import Array, Backend, Stats
from ringcore.ring import Ring

T = TypeVar("T")
Pullback = Callable[..., tuple[Array, ...]]


class Residuals(NamedTuple):
    """What backward needs of a forward call, in the accumulation dtype and (\\*B, H, L_q, E) order.

    Attributes
    ----------
    out : array, shape (\\*B, H, L_q, E)
        The output before it is rounded to the input dtype.
    stats : Stats
        ``m`` and ``l``, shape (\\*B, H, L_q): the weights are ``exp(score - m) / l``.
    """

    out: Array
    stats: Stats


def attention(
    q: Array,
    k: Array,
    v: Array,
    /,
    *,
    ring: Ring | None = None,
    layout: Layout | None = None,
    k_layout: Layout | None = None,
    mask: Mask | None = None,
    scale: float | None = None,
    seq_axis: int = -2,
    return_lse: bool = False,
    return_residuals: bool = False,
    side: str = "auto",
    way: str = "auto",
    meter: Meter | None = None,
    backend: Backend | None = None,
) -> Any:
    """Exact softmax attention over a sequence that is spread over the ranks of a ring.

    Parameters
    ----------
    q : array, shape (\\*B, H, L_q, D) or (L_q, D)
        This rank's queries: float64, float32, float16 or bfloat16.
    k : array, shape (\\*B, G, L_k, D) or (L_k, D)
        This rank's keys; H is a multiple of G (GQA, MQA), and query head h sees key head h // (H / G).
    v : array, shape (\\*B, G, L_k, E) or (L_k, E)
        This rank's values. q, k and v share one library and dtype.
    ring : Ring, optional
        The ranks; one rank by default.
    layout : Layout, optional
        Which global positions the ranks hold. Contiguous, from the ranks' lengths, by default.
    k_layout : Layout, optional
        The same for keys and values, where they are another sequence; ``layout`` by default.
    mask : Mask, optional
        Which keys a query sees, in global positions; all by default.
    scale : float, optional
        Factor of the scores; 1 / sqrt(D) by default.
    seq_axis : {-2, -3}, default -2
        -3 if the arrays, and the output, are (\\*B, L, H, D); they are read by strides.
    return_lse : bool, default False
        Return the log-sum-exp too.
    return_residuals : bool, default False
        Return what `attention_backward` needs too.
    side : {'auto', 'kv', 'q'}
        Which side travels; the one that moves fewer bytes by default.
    way : {'auto', 'ring', 'direct'}
        From neighbour to neighbour, or from owner to reader; what moves fewer bytes by default.
    meter : Meter, optional
        Counts tiles, scores and FLOPs as they are computed.
    backend : Backend, optional
        Kernels to use instead of those registered for the array library.

    Returns
    -------
    out : array, shape (\\*B, H, L_q, E)
        Of the input dtype; 0 for a query that sees no key.
    lse : array, shape (\\*B, H, L_q)
        If ``return_lse``: natural log-sum-exp of the scores, accumulation dtype; -inf for a query that
        sees no key.
    residuals : Residuals
        If ``return_residuals``.

    Raises
    ------
    TypeError, ValueError
        For wrong arguments: the same on every rank, before any data moves.
    PeerTimeout
        If a rank is silent for longer than the ring's timeout.

    Notes
    -----
    Collective: every rank of the ring makes the call. Products of 16-bit inputs accumulate in
    float32, and the output is rounded once.

    References
    ----------
    H. Liu, M. Zaharia, P. Abbeel, *Ring Attention with Blockwise Transformers for Near-Infinite
    Context*, 2023. T. Dao, *FlashAttention-2*, 2023.

    Examples
    --------
    >>> import numpy as np, ringcore as rc
    >>> x = np.random.default_rng(0).standard_normal((7, 4))
    >>> layout = rc.Layout.zigzag(length=7, ranks=2)
    >>> def on_each_rank(ring):
    ...     mine = layout.shard(x, ring.rank)
    ...     return rc.attention(mine, mine, mine, ring=ring, layout=layout, mask=rc.causal())
    >>> out = layout.unshard(rc.run_ranks(2, on_each_rank))
    >>> np.allclose(out, rc.attention(x, x, x, mask=rc.causal()))
    True
    """
    options = Options(ring, layout, k_layout, mask, scale, seq_axis, side, way, meter, backend)
    *outputs, saved = _forward(q, k, v, options, keep=return_residuals)
    results = [outputs[0], *(outputs[1:] if return_lse else ()), *((saved,) if return_residuals else ())]
    return results[0] if len(results) == 1 else tuple(results)


def attention_vjp(
    q: Array,
    k: Array,
    v: Array,
    /,
    *,
    ring: Ring | None = None,
    layout: Layout | None = None,
    k_layout: Layout | None = None,
    mask: Mask | None = None,
    scale: float | None = None,
    seq_axis: int = -2,
    return_lse: bool = False,
    side: str = "auto",
    way: str = "auto",
    meter: Meter | None = None,
    backend: Backend | None = None,
) -> tuple[Any, Pullback]:
    """Attention, and the function that pulls a cotangent of its output back to the inputs.

    Parameters
    ----------
    q, k, v, and all options
        As for `attention`.

    Returns
    -------
    out : array, or (out, lse) if ``return_lse``
        As of `attention`.
    pullback : callable
        ``pullback(dout, dlse=None, wrt=("q", "k", "v"))`` returns exactly the named gradients, in that
        order, each of the shape and dtype of its input. Collective. It keeps references to the inputs,
        so they must not be changed in between. ``dout`` is like ``out``, ``dlse`` like ``lse``.

    Notes
    -----
    Collective, and so is each call of the pullback. Gradients are those of the whole sequence: dk and
    dv of a rank's keys come from the queries of every rank.

    Examples
    --------
    >>> import numpy as np, ringcore as rc
    >>> x = np.random.default_rng(0).standard_normal((5, 4))
    >>> out, pullback = rc.attention_vjp(x, x, x, mask=rc.causal())
    >>> dq, dv = pullback(np.ones_like(out), wrt=("q", "v"))
    >>> dq.shape, round(float(dv.sum()), 6)
    ((5, 4), 20.0)
    """
    options = Options(ring, layout, k_layout, mask, scale, seq_axis, side, way, meter, backend)
    out, lse, saved = _forward(q, k, v, options, keep=True)

    def pullback(
        dout: Array, dlse: Array | None = None, wrt: Sequence[str] = ("q", "k", "v")
    ) -> tuple[Array, ...]:
        return _backward(q, k, v, saved.out, saved.stats, dout, dlse, wrt, options)

    return ((out, lse) if return_lse else out), pullback


def attention_backward(
    q: Array,
    k: Array,
    v: Array,
    out: Array,
    stats: Stats,
    dout: Array,
    /,
    *,
    dlse: Array | None = None,
    wrt: Sequence[str] = ("q", "k", "v"),
    ring: Ring | None = None,
    layout: Layout | None = None,
    k_layout: Layout | None = None,
    mask: Mask | None = None,
    scale: float | None = None,
    seq_axis: int = -2,
    side: str = "auto",
    way: str = "auto",
    meter: Meter | None = None,
    backend: Backend | None = None,
) -> tuple[Array, ...]:
    """Gradients of attention from saved arrays, for frameworks that keep their own residuals.

    Parameters
    ----------
    q, k, v : array
        The inputs of `attention`.
    out : array, shape (\\*B, H, L_q, E)
        ``Residuals.out``. The rounded output of 16-bit inputs is accepted, at the accuracy of its dtype.
    stats : Stats
        ``Residuals.stats``; (lse, ones) stands for the same weights, less accurately.
    dout : array, like the output of `attention`
        Cotangent of the output, of the input dtype.
    dlse : array, shape (\\*B, H, L_q), optional
        Cotangent of the log-sum-exp, accumulation dtype.
    wrt : sequence of {'q', 'k', 'v'}
        Which gradients to compute and return, in this order.
    ring, layout, k_layout, mask, scale, seq_axis, side, way, meter, backend
        As for `attention`; ring, layouts, mask, scale and seq_axis equal to those of the forward call.

    Returns
    -------
    tuple of arrays
        The gradients named in ``wrt``, each of the shape and dtype of its input.

    Raises
    ------
    TypeError, ValueError
        For wrong arguments: the same on every rank, before any data moves.

    Notes
    -----
    Collective. ``delta = rowsum(dout * out) - dlse`` is formed once from the output over all keys.

    Examples
    --------
    >>> import numpy as np, ringcore as rc
    >>> x = np.random.default_rng(0).standard_normal((5, 4))
    >>> out, saved = rc.attention(x, x, x, return_residuals=True)
    >>> (dv,) = rc.attention_backward(x, x, x, saved.out, saved.stats, np.ones_like(out), wrt=("v",))
    >>> round(float(dv.sum()), 6)
    20.0
    """
    options = Options(ring, layout, k_layout, mask, scale, seq_axis, side, way, meter, backend)
    return _backward(q, k, v, out, stats, dout, dlse, wrt, options)


def _quietly(function: Callable[..., T]) -> Callable[..., T]:
    """Inf and NaN are values here, not accidents: NumPy shall neither warn nor raise, on some ranks only."""

    @wraps(function)
    def wrapped(*args: Any, **kwargs: Any) -> T:
        with np.errstate(all="ignore"):
            return function(*args, **kwargs)

    return wrapped


@_quietly
def _forward(q: Array, k: Array, v: Array, options: Options, keep: bool) -> tuple[Array, Array, Residuals]:
    """Output, lse and residuals, which may share the output's memory unless ``keep``."""
    with ring_of(options).exclusive("attention"):
        problem = prepare("attention", q, k, v, options)
        partial = forward(problem)
    xp = array_namespace(problem.q)
    out, lse = finish(xp, partial)
    row = problem.restored_row
    saved = Residuals(row(out), Stats(row(partial.m), row(partial.l)))
    out = problem.restored(xp.astype(out, problem.q.dtype, copy=keep))
    return out, row(lse), saved


@_quietly
def _backward(
    q: Array,
    k: Array,
    v: Array,
    out: Array,
    stats: Stats,
    dout: Array,
    dlse: Array | None,
    wrt: Sequence[str],
    options: Options,
) -> tuple[Array, ...]:
    with ring_of(options).exclusive("attention_backward"):
        problem = prepare("attention_backward", q, k, v, options)
        names, _ = agree(
            "attention_backward",
            problem.ring,
            lambda: _check_cotangents(problem, out, stats, dout, dlse, wrt),
            lambda names: {"wrt": str(names), "dlse": "None" if dlse is None else "an array"},
            repeats=options.layout is not None,
        )
        xp = array_namespace(problem.q)
        dtype = accumulation_dtype(xp, problem.q.dtype)

        def rows(x: Array) -> Array:
            return xp.astype(x[None, ...] if problem.two_d else x, dtype, copy=False)

        dout = problem.canonical(dout)
        delta = xp.sum(xp.astype(dout, dtype, copy=False) * rows(out), axis=-1)
        if dlse is not None:
            delta = delta - rows(dlse)
        grads = backward(problem, rows(out), Stats(rows(stats[0]), rows(stats[1])), dout, delta, names)
        return tuple(problem.restored(xp.astype(grads[name], problem.q.dtype, copy=False)) for name in names)


def _check_cotangents(
    problem: Problem, out: Array, stats: Any, dout: Array, dlse: Array | None, wrt: Any
) -> tuple[str, ...]:
    names = tuple(wrt) if isinstance(wrt, Sequence) else ()
    if not names or any(name not in ("q", "k", "v") for name in names) or len(set(names)) < len(names):
        raise ValueError(f"wrt must name one or more of 'q', 'k', 'v', each once. Got {wrt!r}.")
    if not isinstance(stats, (tuple, list)) or len(stats) != 2:
        raise TypeError(f"stats must be the pair (m, l). Got {type(stats).__name__}. Pass Residuals.stats.")
    rows = tuple(problem.q.shape[:-1])
    rows = rows[1:] if problem.two_d else rows
    values = (*rows, problem.v.shape[-1])
    given = (
        (*rows[:-2], rows[-1], rows[-2], values[-1]) if problem.seq_axis == -3 and len(rows) > 1 else values
    )
    expected: Mapping[str, tuple[Array, tuple[int, ...]]] = {
        "out": (out, values),
        "dout": (dout, given),
        "stats.m": (stats[0], rows),
        "stats.l": (stats[1], rows),
    }
    if dlse is not None:
        expected = {**expected, "dlse": (dlse, rows)}
    for name, (x, shape) in expected.items():
        if tuple(getattr(x, "shape", ())) != shape:
            raise ValueError(
                f"{name} must have shape {shape}. Got {getattr(x, 'shape', type(x).__name__)}. "
                "Pass what the forward call with the same inputs and options returned."
            )
    if not of_one_library(problem.q, *(x for x, _ in expected.values())):
        kinds = ", ".join(f"{name} {type(x).__module__}" for name, (x, _) in expected.items())
        raise TypeError(f"out, stats, dout and dlse must be arrays of the inputs' library. Got {kinds}.")
    dtype, wide = dtype_name(problem.q.dtype), accumulation_name(problem.q.dtype)
    if dtype_name(dout.dtype) != dtype:
        raise TypeError(
            f"dout must have the dtype of the inputs, {dtype}. Got {dtype_name(dout.dtype)}. Cast it."
        )
    for name, (x, _) in expected.items():
        check_byte_order(name, x)
        if dtype_name(x.dtype) not in (dtype, wide):
            raise TypeError(
                f"{name} must have the accumulation dtype, {wide}, or that of the inputs, {dtype}. "
                f"Got {dtype_name(x.dtype)}. Cast it."
            )
    return names
