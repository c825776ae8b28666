"""The BLAS that NumPy has loaded, its kernels and threads, and what the environment tells it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping

import threadpoolctl

from ringcore.cli.doctor.finding import Finding

THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "GOTO_NUM_THREADS",
    "MKL_NUM_THREADS",
    "BLIS_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
)
"""In which people set the number of threads; the first ones are read by most libraries."""

KERNEL_VARIABLES = ("OPENBLAS_CORETYPE", "MKL_ENABLE_INSTRUCTIONS", "BLIS_ARCH_TYPE")
"""Which choose kernels instead of the processor."""


def blas(environ: Mapping[str, str] = os.environ) -> Iterator[Finding]:
    """Each BLAS library of this process, and the variables that steer it."""
    libraries = [x for x in threadpoolctl.threadpool_info() if x["user_api"] == "blas"]
    for library in libraries:
        yield Finding("BLAS", library["internal_api"], described(library))
    if not libraries:
        value = "none that threadpoolctl knows, such as Apple's Accelerate: its threads cannot be limited"
        yield Finding("BLAS", "library", value, "note")
    for name in KERNEL_VARIABLES:
        if environ.get(name):
            value = f"{environ[name]}: forces these kernels, whatever the processor could do"
            yield Finding("BLAS", name, value, "warning", f"unset {name}")
    for name in THREAD_VARIABLES:
        if name in environ:
            yield Finding("BLAS", name, environ[name])


def described(library: Mapping[str, object]) -> str:
    """Version, kernels and threads of an entry of `threadpoolctl.threadpool_info`.

    Examples
    --------
    >>> described({"version": "0.3.31", "architecture": "Zen", "num_threads": 8, "threading_layer": "openmp"})
    '0.3.31, kernels for Zen, threads: 8 (openmp)'
    >>> described({"version": None, "num_threads": 1})
    'version unknown, threads: 1'
    """
    parts = [str(library.get("version") or "version unknown")]
    if library.get("architecture"):
        parts.append(f"kernels for {library['architecture']}")
    layer = f" ({library['threading_layer']})" if library.get("threading_layer") else ""
    return ", ".join([*parts, f"threads: {library['num_threads']}{layer}"])


def threads() -> int | None:
    """How many threads BLAS may use; None where it does not tell."""
    counts = [x["num_threads"] for x in threadpoolctl.threadpool_info() if x["user_api"] == "blas"]
    return max(counts, default=None)


def kernels() -> str:
    """The core types that the BLAS libraries have chosen."""
    chosen = {
        str(x.get("architecture", "")) for x in threadpoolctl.threadpool_info() if x["user_api"] == "blas"
    }
    return ", ".join(sorted(chosen - {""}))
