"""The contenders, a module each; every module has ``rival(cores)``."""

from __future__ import annotations

from rivals import (
    jax_own,
    naive_numpy,
    ring_attention_gloo,
    ringattention_jax,
    ringcore_alone,
    ringcore_mpi,
    torch_sdpa,
)
from rivals.rival import Rival, Unavailable

# ringcore alone first: everybody else is compared with it.
MODULES = (
    ringcore_alone,
    ringcore_mpi,
    torch_sdpa,
    ringattention_jax,
    ring_attention_gloo,
    jax_own,
    naive_numpy,
)


def all_rivals(cores: int) -> tuple[list[Rival], dict[str, str]]:
    """Those that can run here, and why the others cannot, by module."""
    found, missing = [], {}
    for module in MODULES:
        try:
            found.append(module.rival(cores))
        except Unavailable as why:
            missing[module.__name__.rpartition(".")[2]] = str(why)
    return found, missing
