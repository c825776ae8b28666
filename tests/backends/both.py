"""What tests of the NumPy kernels, plain and compiled, have in common."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ringcore as rc
from ringcore.layout import Layout
from ringcore.meter import Meter
from ringcore.step import Step, local_step, lower


def need_compiled() -> None:
    """Skip where there is nothing to compile with."""
    pytest.importorskip("numba", reason="numba is not installed")
    pytest.importorskip("scipy", reason="scipy is not installed")


def inputs(seed: int = 0, dtype: Any = np.float32, shape: tuple[int, ...] = (2, 9, 4)) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def step_of(L: int, mask: rc.Mask) -> Step:
    layout = Layout.contiguous(length=L, ranks=1)
    return local_step(lower(mask, np.arange(L), L), np.arange(L), layout, 0, 0.5, (), Meter())
