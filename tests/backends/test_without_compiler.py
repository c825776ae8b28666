"""What is there where numba or SciPy is not installed: the kernels in NumPy alone."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ROOTS = [str(ROOT / folder) for folder in (".", "backends", "transports")]

PROGRAM = """
import sys
from importlib.abc import MetaPathFinder

sys.path[:0], missing = eval(sys.argv[1]), sys.argv[2].split()

class Nothing(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in missing:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Nothing())
import numpy as np
import ringcore as rc
from ringcore_numpy import NumpyBackend

def results(**options):
    x = np.random.default_rng(0).standard_normal((2, 40, 8)).astype(np.float32)
    out, pullback = rc.attention_vjp(x, x, x, mask=rc.causal(), **options)
    return [y.tobytes() for y in (out, *pullback(out))]

plain = results(backend=NumpyBackend(compiled=False))
print(results() == plain)

def layer(activation):
    x = np.random.default_rng(0).standard_normal((40, 8)).astype(np.float32)
    y, pullback = rc.feedforward_vjp(rc.FeedForward.init(8, 16, seed=0), x, activation=activation)
    return [y.tobytes(), pullback(y)[1].tobytes()]

gelu = rc.activation.ACTIVATIONS["gelu"]
print(layer("gelu") == layer((gelu.value, gelu.derivative)))  # a pair of one's own is never compiled
try:
    results(backend=NumpyBackend(compiled=True))
except ImportError as error:
    print(error)
"""


@pytest.mark.parametrize("missing", ["numba", "scipy", "numba llvmlite scipy"])
def test_the_plain_kernels_are_taken_and_compiled_ones_are_refused(missing: str) -> None:
    program = [sys.executable, "-c", PROGRAM, repr(ROOTS), missing]
    run = subprocess.run(program, capture_output=True, text=True, timeout=60, check=False)
    assert run.returncode == 0, run.stderr
    attention_works, layer_works, *message = run.stdout.splitlines()
    assert attention_works == layer_works == "True"
    (text,) = message
    assert text.startswith("compiled=True needs numba and SciPy. Got: No module named '")
    assert "pip install 'ringcore[fast]'" in text and "compiled=None" in text
