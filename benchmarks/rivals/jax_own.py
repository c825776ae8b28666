"""jax.nn.dot_product_attention under jit; on a CPU it has one implementation, 'xla', without tiles."""

from __future__ import annotations

from typing import Any

from cases import CAUSAL, Case, Inputs

from rivals.compiled_jax import compiled
from rivals.rival import Call, Rival, Unavailable


def prepare(case: Case, arrays: Inputs, setting: Any) -> Call:
    import jax

    def attention(q: Any, k: Any, v: Any) -> Any:
        return jax.nn.dot_product_attention(q, k, v, is_causal=case.mask == CAUSAL)

    return compiled(case, arrays, attention)


def rival(cores: int) -> Rival:
    try:
        import jax
    except ImportError as error:
        raise Unavailable(f"jax cannot be imported: {error}") from None
    how = f"jax.nn.dot_product_attention, jit, jax.vjp; XLA's pool of {cores} threads"
    return Rival("jax.nn", jax.__version__, how, prepare, long=False)
