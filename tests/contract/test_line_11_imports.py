"""Contract, line 11: `import ringcore` loads no backend library, `import ringcore_numpy` no MPI."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ROOTS = [str(ROOT / folder) for folder in (".", "backends", "transports")]
ARRAYS = ("cupy", "jax", "jaxlib", "torch", "numba", "llvmlite", "scipy", "array_api_strict")
MPI = ("mpi4py", "ringcore_mpi", "ringcore_nccl")
TOOLS = ("pytest", "hypothesis", "matplotlib", "rich", "typer", "dnaio", "ml_dtypes")

USE = """
import numpy as np, ringcore as rc
x = np.ones((5, 2), np.float32)
rc.run_ranks(2, lambda ring: rc.attention_vjp(x, x, x, ring=ring, mask=rc.causal())[1](x))
"""
PLAIN = USE.replace("ring=ring", "ring=ring, backend=NumpyBackend(compiled=False)")
COMPILERS = ("numba", "llvmlite", "scipy")  # the default kernels use them where they are installed


def loaded(program: str) -> set[str]:
    """Top-level modules that a fresh interpreter has after a program."""
    shown = "print(*{m.partition('.')[0] for m in sys.modules})"
    program = f"import sys; sys.path[:0] = {ROOTS!r}\n{program}\n{shown}"
    run = subprocess.run(
        [sys.executable, "-I", "-c", program], capture_output=True, text=True, check=True, timeout=60
    )
    return set(run.stdout.split())


@pytest.mark.parametrize(
    ("program", "banned"),
    [
        ("import ringcore", (*ARRAYS, *MPI, *TOOLS, "ringcore_numpy", "ringcore_threads")),
        ("import ringcore_numpy", (*ARRAYS, *MPI, *TOOLS)),
        ("import ringcore.testing", (*ARRAYS, *MPI, *TOOLS)),
        (USE, {*ARRAYS, *MPI, *TOOLS} - {*COMPILERS}),
        ("from ringcore_numpy import NumpyBackend" + PLAIN, (*ARRAYS, *MPI, *TOOLS)),
    ],
    ids=["ringcore", "ringcore_numpy", "ringcore.testing", "numpy on two ranks", "plain numpy on two ranks"],
)
def test_line_11_loads_none_of(program, banned):
    assert loaded(program) & set(banned) == set()


def test_line_11_the_test_sees_what_is_loaded():
    assert {"json", "ringcore"} <= loaded("import json, ringcore")
