"""What the figures were measured on, and with."""

from __future__ import annotations

import os
import platform
import subprocess
from datetime import UTC, datetime
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

import environment
import psutil
import threadpoolctl

PACKAGES = (
    *("ringcore", "numpy", "scipy", "numba", "llvmlite", "threadpoolctl", "mpi4py", "mpich"),
    *("torch", "jax", "jaxlib", "flax", "ringattention", "ring-attention-pytorch"),
)


def cpu_model() -> str:
    """As the operating system has it."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def instructions() -> list[str]:
    """The vector instruction sets that decide how fast a product can be."""
    info = Path("/proc/cpuinfo")
    flags = set(info.read_text().split()) if info.exists() else set()
    return [name for name in ("avx2", "fma", "avx512f", "avx512_bf16", "amx_tile", "sve") if name in flags]


def caches() -> dict[str, str]:
    """Of the first core: ``{"L2": "1024K", ...}``."""
    found = {}
    for index in sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")):
        level, kind, size = ((index / name).read_text().strip() for name in ("level", "type", "size"))
        found[f"L{level}" + {"Data": "d", "Instruction": "i"}.get(kind, "")] = size
    return found


def blas() -> list[dict[str, Any]]:
    """Every BLAS that is loaded, without its path."""
    wanted = ("internal_api", "version", "architecture", "threading_layer", "num_threads", "prefix")
    infos = [info for info in threadpoolctl.threadpool_info() if info["user_api"] == "blas"]
    return [{name: info[name] for name in wanted if name in info} for info in infos]


def commit() -> str:
    """Of the source that was measured; '-dirty' if it was changed since."""
    command = ["git", "describe", "--always", "--dirty", "--abbrev=12"]
    here = Path(__file__).parent
    try:
        return subprocess.run(command, cwd=here, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def facts(cores: int) -> dict[str, Any]:
    """All of it, for a results file. Call it when everything has been imported."""
    installed = {d.metadata["Name"].lower(): d.version for d in distributions()}
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "cpu": cpu_model(),
        "architecture": platform.machine(),
        "instructions": instructions(),
        "cores": cores,
        "caches": caches(),
        "memory_gb": round(psutil.virtual_memory().total / 1e9, 1),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "commit": commit(),
        "blas": blas(),
        "packages": {name: installed[name] for name in PACKAGES if name in installed},
        "variables": {"removed": environment.REMOVED, "set": environment.SET},
        "load_average": [round(x, 2) for x in os.getloadavg()],
    }
