"""Parameters of a feedforward layer."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from array_api_compat import array_namespace

from ringcore.dtypes import accumulation_name, dtype_name, dtype_of
from ringcore.protocols import Array


class FeedForward(NamedTuple):
    """Parameters of a layer ``(act(x w_in + b_in) [* (x w_gate + b_gate)]) w_out + b_out``.

    A pytree everywhere. Gradients with respect to a layer are a layer again.

    Attributes
    ----------
    w_in : array, shape (D, F)
        F is the hidden width.
    w_out : array, shape (F, D_out)
    b_in : array, shape (F,), optional
    b_out : array, shape (D_out,), optional
    w_gate : array, shape (D, F), optional
        With it the layer is gated: with silu this is SwiGLU, with gelu GEGLU (Shazeer, 2020).
    b_gate : array, shape (F,), optional
    """

    w_in: Array
    w_out: Array
    b_in: Array | None = None
    b_out: Array | None = None
    w_gate: Array | None = None
    b_gate: Array | None = None

    @classmethod
    def init(
        cls,
        features: int,
        hidden: int,
        out: int | None = None,
        *,
        seed: int | np.random.Generator,
        gated: bool = False,
        bias: bool = True,
        dtype: Any = "float32",
        xp: Any = np,
    ) -> FeedForward:
        """A random layer: weights normal with variance 1 / fan-in (LeCun), biases zero.

        Parameters
        ----------
        features, hidden, out : int
            D, F and D_out; D_out = D if not given.
        seed : int or numpy.random.Generator
            The numbers are NumPy's whatever ``xp`` is: the same seed makes the same layer on every
            rank and in every library.
        gated, bias : bool
            Whether the layer has a gate, and biases.
        dtype : str or dtype
            Name of a dtype of ``xp``, or a dtype object.
        xp : module
            Array API namespace of the parameters.

        Examples
        --------
        >>> layer = FeedForward.init(8, 32, seed=0, gated=True)
        >>> layer.w_gate.shape, layer.b_out.shape, layer.w_in.dtype
        ((8, 32), (8,), dtype('float32'))
        """
        rng = np.random.default_rng(seed)
        dtype = dtype_of(xp, dtype) if isinstance(dtype, str) else dtype
        out = features if out is None else out

        def weight(fan_in: int, fan_out: int) -> Array:
            drawn = xp.asarray(rng.standard_normal((fan_in, fan_out)) / math.sqrt(max(fan_in, 1)))
            return array_namespace(drawn).astype(drawn, dtype)

        def zeros(width: int) -> Array | None:
            return xp.zeros(width, dtype=dtype) if bias else None

        return cls(
            w_in=weight(features, hidden),
            w_out=weight(hidden, out),
            b_in=zeros(hidden),
            b_out=zeros(out),
            w_gate=weight(features, hidden) if gated else None,
            b_gate=zeros(hidden) if gated else None,
        )


def check_layer(layer: FeedForward, x: Array) -> None:
    """Raise ValueError or TypeError if the parameters do not fit each other, or x of shape (..., D)."""
    present = {name: p for name, p in layer._asdict().items() if p is not None}
    for name in ("w_in", "w_out"):
        if name not in present:
            raise ValueError(f"{name} must be given. Got None. Only biases and the gate may be left out.")
    if layer.b_gate is not None and layer.w_gate is None:
        raise ValueError("b_gate must come with w_gate. Got b_gate alone. Give w_gate, or leave b_gate out.")
    try:
        array_namespace(x, *present.values())
    except TypeError:
        types = ", ".join(f"{name} {type(p).__name__}" for name, p in {"x": x, **present}.items())
        raise TypeError(
            f"x and layer must be arrays of one library. Got {types}. Convert them to that of x."
        ) from None
    (D, F), out = _matrix_shape(layer.w_in, "w_in"), _matrix_shape(layer.w_out, "w_out")[1]
    want = {
        "w_in": (x.shape[-1], F),
        "w_out": (F, out),
        "b_in": (F,),
        "b_out": (out,),
        "w_gate": (D, F),
        "b_gate": (F,),
    }
    for name, p in present.items():
        if tuple(p.shape) != want[name]:
            raise ValueError(
                f"{name} must have shape {want[name]}. Got {tuple(p.shape)}; x has {x.shape[-1]} features, "
                f"w_in is {tuple(layer.w_in.shape)}, w_out {tuple(layer.w_out.shape)}. "
                "w_in and w_gate are (D, F), w_out is (F, D_out)."
            )
    allowed = {dtype_name(x.dtype), accumulation_name(x.dtype)}
    dtypes = {name: dtype_name(p.dtype) for name, p in present.items()}
    if len(set(dtypes.values())) != 1 or not set(dtypes.values()) <= allowed:
        raise TypeError(
            f"all arrays of layer must share one dtype, {' or '.join(sorted(allowed))} for x of "
            f"{dtype_name(x.dtype)}. Got {dtypes}. Convert them: mixed dtypes are not promoted."
        )


def _matrix_shape(p: Array, name: str) -> tuple[int, int]:
    if p.ndim != 2:
        raise ValueError(f"{name} must have 2 axes. Got shape {tuple(p.shape)}. Give a matrix.")
    return p.shape[0], p.shape[1]
