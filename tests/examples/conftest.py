"""The examples are scripts beside their modules, not packages: their folders are put on the path."""

from __future__ import annotations

import sys
from collections.abc import Generator
from pathlib import Path

import pytest
from threadpoolctl import threadpool_limits

sys.path.append(str(Path(__file__).parents[2] / "examples" / "transformer"))


@pytest.fixture(autouse=True)
def _one_core_for_each_rank() -> Generator[None]:
    """As examples/transformer/train.py has it: in small products BLAS's threads only wait for each other."""
    with threadpool_limits(1, user_api="blas"):
        yield
