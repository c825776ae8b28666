"""The PyPI package `ringattention`, the JAX original, on two host devices under shard_map."""

from __future__ import annotations

from functools import partial
from importlib.metadata import PackageNotFoundError, version
from types import SimpleNamespace
from typing import Any

import numpy as np
from cases import CAUSAL, Case, Inputs

from rivals.compiled_jax import compiled
from rivals.rival import Call, Rival, Unavailable

# (query_chunk_size, key_chunk_size)
SETTINGS = ((512, 512), (128, 128), (256, 256), (1024, 1024), (256, 512), (1024, 256))


def load() -> Any:
    """The function; the package's import fails on today's JAX, which has no ``jax.lib.xla_bridge``."""
    import jax

    jax.lib.xla_bridge = SimpleNamespace(get_backend=lambda: jax.devices()[0].client)
    from ringattention import ringattention

    return ringattention


def prepare(case: Case, arrays: Inputs, setting: Any) -> Call:
    import jax

    queries, keys = setting
    devices = jax.devices()[:2]
    if case.length % (len(devices) * max(setting)):
        raise Unavailable(f"{case.length} tokens on {len(devices)} devices are no multiple of {setting}")
    mesh = jax.sharding.Mesh(np.array(devices), ("sp",))
    spec = jax.P(None, "sp", None, None)
    options = {
        "causal_block_size": 1 if case.mask == CAUSAL else None,
        "query_chunk_size": queries,
        "key_chunk_size": keys,
        "deterministic": True,
        "dropout_rng": None,
        "attn_pdrop": 0.0,
        "dtype": np.float32,
        "policy": jax.checkpoint_policies.nothing_saveable,
        "precision": None,
        "prevent_cse": False,
    }
    ring = partial(load(), axis_name="sp", float32_logits=True, blockwise_kwargs=options)
    # No bias, no segments, no cache.
    specs = (spec, spec, spec, None, None, None)
    sharded = jax.shard_map(ring, mesh=mesh, in_specs=specs, out_specs=spec, check_vma=False)
    sharding = jax.sharding.NamedSharding(mesh, spec)
    return compiled(case, arrays, lambda q, k, v: sharded(q, k, v, None, None, None), sharding)


def rival(cores: int) -> Rival:
    try:
        load()
        number = version("ringattention")
    except (ImportError, PackageNotFoundError) as error:
        raise Unavailable(f"ringattention cannot be imported: {error}") from None
    how = (
        "ringattention on 2 host devices, shard_map, jit, jax.vjp, nothing_saveable; "
        f"XLA's pool of {cores} threads; jax.lib.xla_bridge, which its import wants and today's JAX lacks, "
        "is put there"
    )
    return Rival("ringattention", number, how, prepare, SETTINGS)
