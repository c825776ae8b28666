"""What both JAX contenders share: compile ahead of time, refuse what does not fit into memory, run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import psutil
from cases import Array, Case, Inputs

from rivals.rival import Call, Unavailable

MEMORY = 0.6
"""Share of the free memory that a program may need."""


def compiled(case: Case, arrays: Inputs, attention: Callable[..., Any], sharding: Any = None) -> Call:
    """``attention(q, k, v)``, arrays (1, S, H, D), or that and its vjp, under jit."""
    import jax

    def both(q: Any, k: Any, v: Any, dout: Any) -> Any:
        out, pullback = jax.vjp(attention, q, k, v)
        return (out, *pullback(dout))

    def forward(q: Any, k: Any, v: Any) -> Any:
        return (attention(q, k, v),)

    given = [jax.device_put(x.swapaxes(0, 1)[None], sharding) for x in arrays]
    function, given = (both, given) if case.backward else (forward, given[:3])
    program = jax.jit(function).lower(*given).compile()
    memory, devices = program.memory_analysis(), len(sharding.device_set) if sharding else 1
    needed = memory.temp_size_in_bytes * devices if memory else 0
    free = psutil.virtual_memory().available
    if needed > MEMORY * free:
        raise Unavailable(f"XLA wants {needed / 1e9:.1f} GB beside its arrays; {free / 1e9:.1f} GB are free")

    def to_numpy(results: Any) -> tuple[Array, ...]:
        return tuple(np.asarray(x)[0].swapaxes(0, 1) for x in results)

    return Call(lambda: jax.block_until_ready(program(*given)), to_numpy)
