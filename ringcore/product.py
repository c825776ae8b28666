"""Matrix products: float32 means float32."""

from __future__ import annotations

from array_api_compat import array_namespace, is_jax_array

from ringcore.protocols import Array


def matmul(a: Array, b: Array) -> Array:
    """``a @ b`` in the full precision of the dtype: on accelerators JAX would round float32 factors."""
    xp = array_namespace(a, b)
    return xp.matmul(a, b, precision="highest") if is_jax_array(a) else xp.matmul(a, b)
