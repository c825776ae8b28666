"""How everything here is compiled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from numba import config, njit

if config.DISABLE_JIT:
    raise ImportError("NUMBA_DISABLE_JIT is set")

F = TypeVar("F", bound=Callable[..., Any])

# No fast-math: NaN and inf are values here; `instructions.add_in_any_order` and `exponential.exp` say what
# may be reordered or contracted. Division by zero is inf or NaN, not an exception.
OPTIONS: dict[str, Any] = {"nogil": True, "error_model": "numpy"}


def part_of_kernels(function: F) -> F:
    """A function that kernels call; compiled into each of them."""
    return njit(**OPTIONS)(function)  # type: ignore[no-any-return]
