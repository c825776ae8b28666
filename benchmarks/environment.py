"""The variables under which everything runs. Libraries read them when they are loaded."""

from __future__ import annotations

import os
import sys

REMOVED = (
    "OPENBLAS_CORETYPE",
    "OPENBLAS_L2_SIZE",
    "OPENBLAS_NUM_THREADS",
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "NUMBA_NUM_THREADS",
)
"""Choices of a kernel, a cache size or a number of threads that would favour somebody."""

SET = {
    "JAX_PLATFORMS": "cpu",
    # Two host devices for `ringattention`; jax.nn runs on the first, with as many threads as without.
    "XLA_FLAGS": "--xla_force_host_platform_device_count=2",
}


def settle() -> None:
    """Start this program anew unless its variables are as they should be: first of all in ``main``."""
    wanted = {name: value for name, value in os.environ.items() if name not in REMOVED} | SET
    if wanted != dict(os.environ):
        os.execve(sys.executable, [sys.executable, *sys.argv], wanted)


def cores() -> int:
    """Those that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
