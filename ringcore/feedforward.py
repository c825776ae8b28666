"""The feedforward layer, token by token in chunks: hidden activations never exceed one chunk."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from array_api_compat import array_namespace, is_array_api_obj, is_jax_array
from array_api_compat import device as device_of

from ringcore.activation import ACTIVATIONS, Activation
from ringcore.agree import agree
from ringcore.dtypes import accumulation_dtype, dtype_name, is_supported
from ringcore.hidden import PlainHidden
from ringcore.layer import FeedForward, check_layer
from ringcore.product import matmul
from ringcore.protocols import Array, FastFeedForward, Hidden
from ringcore.registry import backend_of
from ringcore.shards import sequence_axis

if TYPE_CHECKING:
    from ringcore.ring import Ring

__all__ = ["Activation", "FeedForward", "feedforward", "feedforward_vjp"]

_CHUNK = 2048
"""Tokens worked on at a time, where neither the caller nor the backend says."""

Choice = str | Activation | tuple[Callable[[Array], Array], Callable[[Array], Array]]
Pullback = Callable[[Array], "tuple[FeedForward, Array]"]


def feedforward(
    layer: FeedForward,
    x: Array,
    /,
    *,
    activation: Choice = "gelu",
    chunk: int | None = None,
    seq_axis: int = -2,
) -> Array:
    """Apply a feedforward layer to every token.

    Parameters
    ----------
    layer : FeedForward
        Its arrays share one dtype: that of ``x``, or its accumulation dtype.
    x : array, shape (\\*B, L, D)
        float64, float32, float16 or bfloat16. With ``seq_axis=-3``: (\\*B, L, H, D).
    activation : str or Activation
        'gelu' (exact, by the normal distribution function), 'gelu_tanh', 'silu', 'relu', or one's
        own: an `Activation`, or a pair of callables (value, derivative).
    chunk : int, optional
        Tokens worked on at a time; the result does not depend on it, up to rounding. Memory for
        about a dozen arrays of shape (chunk, F) is needed, whatever L is; for three where the backend
        fuses the activation (NumPy with numba). By default, what suits the backend: for NumPy arrays
        512 to 2048 tokens, so that the hidden numbers stay in the cache, else 2048.
    seq_axis : int
        Sequence axis; not the last one, which holds the features. All other axes hold tokens.

    Returns
    -------
    array, shape (\\*B, L, D_out)
        Dtype of ``x``. 16-bit inputs are worked on in float32 and rounded once.

    Raises
    ------
    ValueError, TypeError
        If shapes or dtypes do not fit.

    Notes
    -----
    Not a collective: a token needs no other token. ``x`` is copied as a whole only if its token axes
    cannot be flattened to one by strides.

    Examples
    --------
    >>> import numpy as np
    >>> layer = FeedForward(w_in=np.eye(2), w_out=np.array([[1.0], [10.0]]))
    >>> feedforward(layer, np.array([[1.0, 2.0], [-3.0, 4.0]]), activation="relu")
    array([[21.],
           [40.]])
    """
    return _forward(_prepare(layer, x, activation, chunk, seq_axis))


def feedforward_vjp(
    layer: FeedForward,
    x: Array,
    /,
    *,
    activation: Choice = "gelu",
    chunk: int | None = None,
    seq_axis: int = -2,
    ring: Ring | None = None,
) -> tuple[Array, Pullback]:
    """Apply a feedforward layer, and get the function that pulls a cotangent back.

    Parameters
    ----------
    layer, x, activation, chunk, seq_axis
        As in `feedforward`.
    ring : Ring, optional
        Sum the gradients of the parameters over its ranks.

    Returns
    -------
    y : array, shape (\\*B, L, D_out)
    pullback : callable
        ``pullback(dy) -> (dlayer, dx)`` with ``dy`` of the shape and dtype of ``y``. ``dlayer`` is a
        FeedForward of gradients, each of its parameter's dtype, None where the layer has None:
        this rank's share, or with ``ring`` the sum over its ranks, the same bits on each. Sums are
        kept in the accumulation dtype and rounded once.

    Raises
    ------
    ValueError, TypeError
        If shapes or dtypes do not fit, or with ``ring`` if ranks pass different layers; on all alike.

    Notes
    -----
    Only ``layer`` (16-bit parameters as float32) and ``x`` are kept; backward computes each chunk again.
    With ``ring`` both the call and the pullback are collectives.

    Examples
    --------
    >>> import numpy as np
    >>> layer = FeedForward(w_in=np.eye(2), w_out=np.array([[1.0], [10.0]]))
    >>> y, pullback = feedforward_vjp(layer, np.array([[1.0, 2.0], [-3.0, 4.0]]), activation="relu")
    >>> dlayer, dx = pullback(np.ones_like(y))
    >>> dx
    array([[ 1., 10.],
           [ 0., 10.]])
    >>> dlayer.w_out.T, dlayer.b_in
    (array([[1., 6.]]), None)
    """

    def check() -> _Call:
        return _prepare(layer, x, activation, chunk, seq_axis)

    call = check() if ring is None else agree("feedforward_vjp", ring, check, _facts)[0]
    y = _forward(call)

    def pullback(dy: Array) -> tuple[FeedForward, Array]:
        if ring is None:
            call.check_cotangent(dy)
        else:
            agree("feedforward_vjp's pullback", ring, lambda: call.check_cotangent(dy), lambda _: {})
        sums, dx = _backward(call, dy)
        if ring is not None:
            sums = {name: ring.allreduce(total) for name, total in sums.items()}
        rounded = {
            name: call.xp.astype(total, getattr(layer, name).dtype, copy=False)
            for name, total in sums.items()
        }
        return FeedForward(**{**dict.fromkeys(FeedForward._fields), **rounded}), dx

    return y, pullback


# -------------------------------------------------------------------------------- arithmetic


@dataclass(frozen=True)
class _Call:
    """Checked arguments of one call."""

    xp: Any
    given: FeedForward  # as the caller has it
    layer: FeedForward  # in the accumulation dtype
    x: Array
    hidden: Hidden
    chunk: int
    activation: str  # for the comparison of ranks

    @property
    def tokens(self) -> int:
        return math.prod(self.x.shape[:-1])

    @property
    def y_shape(self) -> tuple[int, ...]:
        return (*self.x.shape[:-1], self.given.w_out.shape[1])

    def chunks(self) -> Iterator[slice]:
        """Token ranges; one, empty, if there are no tokens."""
        for start in range(0, max(self.tokens, 1), self.chunk):
            yield slice(start, min(start + self.chunk, self.tokens))

    def rows(self, x: Array) -> Array:
        """One row per token, a view where strides allow it."""
        return self.xp.reshape(x, (self.tokens, x.shape[-1]))

    def wide(self, rows: Array) -> Array:
        """In the accumulation dtype."""
        dtype: Array = accumulation_dtype(self.xp, self.x.dtype)
        return self.xp.astype(rows, dtype, copy=False)

    def check_cotangent(self, dy: Array) -> None:
        if not is_array_api_obj(dy):
            raise TypeError(f"dy must be an array. Got {type(dy).__name__}. Pass the cotangent of y.")
        if tuple(dy.shape) != self.y_shape or dy.dtype != self.x.dtype:
            raise ValueError(
                f"dy must have the shape and dtype of y, {self.y_shape} and {dtype_name(self.x.dtype)}. Got "
                f"{tuple(dy.shape)} and {dtype_name(dy.dtype)}. Reshape or convert it."
            )


def _first_products(
    layer: FeedForward, rows: Array
) -> tuple[Array, Array | None, Array | None, Array | None]:
    """What `Hidden` takes: its arrays are all of hidden width that there is."""
    gate = None if layer.w_gate is None else matmul(rows, layer.w_gate)
    return matmul(rows, layer.w_in), layer.b_in, gate, layer.b_gate


def _forward(call: _Call) -> Array:
    rows, layer = call.rows(call.x), call.layer

    def blocks() -> Iterator[Array]:
        for part in call.chunks():
            h = call.hidden.forward(*_first_products(layer, call.wide(rows[part, :])))
            y = matmul(h, layer.w_out)
            del h  # before the next one is made
            yield y if layer.b_out is None else y + layer.b_out

    return call.xp.reshape(_collect(call, blocks(), call.y_shape[-1]), call.y_shape)


def _backward(call: _Call, dy: Array) -> tuple[dict[str, Array], Array]:
    """Gradients of the parameters by name, accumulation dtype, and of x in its own."""
    xp, layer = call.xp, call.layer
    rows, dy_rows = call.rows(call.x), call.rows(dy)
    sums: dict[str, Array] = {}

    def add(name: str, term: Array) -> None:
        if name in sums:
            sums[name] += term
        else:
            sums[name] = term

    def blocks() -> Iterator[Array]:
        for part in call.chunks():
            x, dout = call.wide(rows[part, :]), call.wide(dy_rows[part, :])
            h, dz, dgate = call.hidden.backward(
                *_first_products(layer, x), matmul(dout, _transposed(layer.w_out))
            )
            add("w_out", matmul(_transposed(h), dout))
            del h  # of hidden width, and done with
            add("w_in", matmul(_transposed(x), dz))
            dx = matmul(dz, _transposed(layer.w_in))
            if dgate is not None:
                add("w_gate", matmul(_transposed(x), dgate))
                dx += matmul(dgate, _transposed(layer.w_gate))
            for name, cotangent in (("b_in", dz), ("b_out", dout), ("b_gate", dgate)):
                if getattr(layer, name) is not None:
                    add(name, xp.sum(cotangent, axis=0))
            del dz, dgate, cotangent  # all the same before the next ones are made
            yield dx

    dx = xp.reshape(_collect(call, blocks(), call.x.shape[-1]), call.x.shape)
    return {name: sums[name] for name in FeedForward._fields if name in sums}, dx


def _transposed(x: Array) -> Array:
    return array_namespace(x).matrix_transpose(x)


def _collect(call: _Call, blocks: Iterator[Array], width: int) -> Array:
    """The blocks below each other, each rounded to the dtype of x as it arrives."""
    xp, dtype = call.xp, call.x.dtype
    if is_jax_array(call.x):  # cannot be assigned to
        return xp.concat([xp.astype(block, dtype, copy=False) for block in blocks], axis=0)
    whole = xp.empty((call.tokens, width), dtype=dtype, device=device_of(call.x))
    for part, block in zip(call.chunks(), blocks, strict=True):
        whole[part, :] = xp.astype(block, dtype, copy=False)
    return whole


# -------------------------------------------------------------------------------- arguments


def _prepare(layer: FeedForward, x: Array, activation: Choice, chunk: int | None, seq_axis: int) -> _Call:
    """Check all arguments."""
    if not isinstance(layer, FeedForward):
        raise TypeError(
            f"layer must be a FeedForward. Got {type(layer).__name__}. "
            "Make it with FeedForward(w_in=, w_out=, ...)."
        )
    if sequence_axis("x", x, seq_axis) == x.ndim - 1:
        raise ValueError(
            f"seq_axis must not be the last axis, which holds the features. Got seq_axis={seq_axis} for "
            f"shape {tuple(x.shape)}. Give x as (*B, L, D)."
        )
    if not is_supported(x.dtype):
        raise TypeError(
            f"x must be float64, float32, float16 or bfloat16. Got {dtype_name(x.dtype)}. Convert it first."
        )
    check_layer(layer, x)
    xp = array_namespace(x)
    wide = accumulation_dtype(xp, x.dtype)
    act, name = _activation(activation)
    hidden, best_chunk = _means(act, name, x, layer, xp.finfo(wide).bits // 8)
    return _Call(
        xp=xp,
        given=layer,
        layer=FeedForward(*(None if p is None else xp.astype(p, wide, copy=False) for p in layer)),
        x=x,
        hidden=hidden,
        chunk=best_chunk if chunk is None else _whole_chunk(chunk),
        activation=name,
    )


def _means(act: Activation, name: str, x: Array, layer: FeedForward, itemsize: int) -> tuple[Hidden, int]:
    """The steps between the products, and the default chunk: the backend's, where it offers them."""
    backend = backend_of(x)
    if not isinstance(backend, FastFeedForward):
        return PlainHidden(act), _CHUNK
    fused = backend.hidden(name) if name in ACTIVATIONS else None
    return fused or PlainHidden(act), backend.feedforward_chunk(layer.w_in.shape[1], itemsize)


def _activation(choice: Choice) -> tuple[Activation, str]:
    """The activation, and what to call it."""
    if isinstance(choice, str) and choice in ACTIVATIONS:
        return ACTIVATIONS[choice], choice
    pair: Any = choice
    if isinstance(choice, Activation):
        pair = (choice.value, choice.derivative)
    if isinstance(pair, tuple) and len(pair) == 2 and all(callable(f) for f in pair):
        return Activation(*pair), "the caller's own"
    raise ValueError(
        f"activation must be one of {', '.join(ACTIVATIONS)}, or a pair of callables (value, derivative). "
        f"Got {choice!r}. Wrap your own in Activation(value, derivative)."
    )


def _whole_chunk(chunk: int) -> int:
    try:
        if isinstance(chunk, bool):
            raise TypeError
        whole = operator.index(chunk)
    except TypeError:
        raise TypeError(f"chunk must be an integer. Got {chunk!r}. Give a number of tokens.") from None
    if whole < 1:
        raise ValueError(f"chunk must be at least 1. Got {whole}. Give a number of tokens.")
    return whole


def _facts(call: _Call) -> dict[str, str]:
    """What the ranks of a ring must have in common."""
    shapes = {name: tuple(p.shape) for name, p in call.given._asdict().items() if p is not None}
    return {
        "layer": f"{shapes} of {dtype_name(call.given.w_in.dtype)}",
        "dtype of x": dtype_name(call.x.dtype),
        "activation": call.activation,
    }
