"""Tests that take ``compiled`` run over the kernels in NumPy alone, and over the compiled ones."""

from __future__ import annotations

import pytest

from tests.backends.both import need_compiled


# Not scoped to the function: hypothesis rightly complains of a fixture that is not renewed for each example.
@pytest.fixture(scope="module", params=[False, True], ids=["plain", "compiled"])
def compiled(request: pytest.FixtureRequest) -> bool:
    """What `NumpyBackend` takes."""
    if request.param:
        need_compiled()
    return bool(request.param)
