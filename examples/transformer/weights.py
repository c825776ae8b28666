"""The parameters: one flat vector, and the same memory seen as named arrays.

Gradients have the same form. So the sum over ranks is one `allreduce` of one vector, an optimizer is a few
lines on vectors, and a layer's backward adds into the named arrays.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from dna import BASES, LETTERS
from numpy.typing import NDArray

import ringcore as rc

Floats = NDArray[Any]
"""float32 or float64."""


@dataclass(frozen=True)
class Sizes:
    """How large the model is.

    Attributes
    ----------
    layers : int
    width : int
        C, the features of a token between layers.
    heads, kv_heads : int
        H and G: query head h sees key head h // (H / G).
    hidden : int
        F, the width inside the feedforward layer.
    """

    layers: int = 2
    width: int = 64
    heads: int = 4
    kv_heads: int = 2
    hidden: int = 128

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if value < 1:
                raise ValueError(f"{name} must be at least 1. Got {value}.")
        if self.heads % self.kv_heads:
            raise ValueError(
                f"heads must be a multiple of kv_heads. Got heads={self.heads}, kv_heads={self.kv_heads}."
            )
        if self.width % (2 * self.heads):
            raise ValueError(
                f"width must be a multiple of 2 x heads: rotary positions turn pairs of features. "
                f"Got width={self.width}, heads={self.heads}."
            )

    @property
    def head_dim(self) -> int:
        """D, of keys and values alike."""
        return self.width // self.heads


class Layer(NamedTuple):
    """One decoder layer: ``h = x + attention(norm(x)) w_o``, ``y = h + feedforward(norm(h))``.

    Attributes
    ----------
    norm_1, norm_2 : array, shape (C,)
    w_q : array, shape (C, H D)
    w_k, w_v : array, shape (C, G D)
    w_o : array, shape (H D, C)
    ff : ringcore.FeedForward
        Gated, without biases: ``(silu(n w_in) * (n w_gate)) w_out``.
    """

    norm_1: Floats
    w_q: Floats
    w_k: Floats
    w_v: Floats
    w_o: Floats
    norm_2: Floats
    ff: rc.FeedForward


class Weights(NamedTuple):
    """All parameters, or all their gradients.

    Attributes
    ----------
    flat : array, shape (N,)
        The memory that all others are views of.
    embed : array, shape (LETTERS, C)
    layers : tuple of Layer
    norm : array, shape (C,)
    head : array, shape (C, BASES)
    """

    flat: Floats
    embed: Floats
    layers: tuple[Layer, ...]
    norm: Floats
    head: Floats

    def named(self) -> Iterator[tuple[str, Floats]]:
        """Every array with its name, as in ``layers.0.ff.w_in``; together they are all of ``flat``."""
        yield "embed", self.embed
        for i, layer in enumerate(self.layers):
            for name, array in {**layer._asdict(), **layer.ff._asdict()}.items():
                if isinstance(array, np.ndarray):
                    yield f"layers.{i}.{'ff.' if name in layer.ff._fields else ''}{name}", array
        yield "norm", self.norm
        yield "head", self.head


def zeros(sizes: Sizes, dtype: str) -> Weights:
    """Weights that are all 0: what gradients begin with."""
    C, F, D = sizes.width, sizes.hidden, sizes.head_dim
    q, kv = sizes.heads * D, sizes.kv_heads * D
    a_layer = C + C * (q + kv + kv) + q * C + C + 3 * C * F
    flat = np.zeros(LETTERS * C + sizes.layers * a_layer + C + C * BASES, dtype)
    taken = 0

    def take(*shape: int) -> Floats:
        nonlocal taken
        start, taken = taken, taken + math.prod(shape)
        return flat[start:taken].reshape(shape)

    def layer() -> Layer:
        return Layer(
            norm_1=take(C), w_q=take(C, q), w_k=take(C, kv), w_v=take(C, kv), w_o=take(q, C), norm_2=take(C),
            ff=rc.FeedForward(w_in=take(C, F), w_out=take(F, C), w_gate=take(C, F)),
        )  # fmt: skip

    embed, layers = take(LETTERS, C), tuple(layer() for _ in range(sizes.layers))
    return Weights(flat, embed, layers, norm=take(C), head=take(C, BASES))


def initial(sizes: Sizes, seed: int, dtype: str) -> Weights:
    """Random weights, the same on every rank: matrices normal with variance 1 / fan-in, gains 1.

    What is added to the stream of activations is smaller by sqrt(2 layers), as in GPT-2, and the head
    begins at 0: the first loss is ln 4, that of a guess among four bases.
    """
    rng = np.random.default_rng(seed)
    weights = zeros(sizes, dtype)
    for name, array in weights.named():
        last = name.rpartition(".")[2]
        if last.startswith("norm"):
            array[...] = 1
        elif last == "embed":
            array[...] = rng.standard_normal(array.shape)
        elif last.startswith("w_"):
            damping = math.sqrt(2 * sizes.layers) if last in ("w_o", "w_out") else 1
            array[...] = rng.standard_normal(array.shape) / (math.sqrt(array.shape[0]) * damping)
    return weights
