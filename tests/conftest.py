"""What every test has: array libraries, hypothesis profiles, and no skip without a listed reason."""

from __future__ import annotations

import os
import sys
from collections.abc import Generator

import pytest

from tests.libraries import LIBRARIES, Library
from tests.profiles import for_library, register
from tests.skips import SkipList

# Before anybody imports jax: float64 stays float64 (contract, line 7), and no GPU is touched.
os.environ.setdefault("JAX_ENABLE_X64", "1")
os.environ.setdefault("JAX_PLATFORMS", "cpu")

PROFILE = register()


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(SkipList(), "ringcore-skip-list")


def pytest_report_header() -> str:
    return f"ringcore: hypothesis profile {PROFILE}"


@pytest.fixture(scope="module", autouse=True)
def _no_compiled_programs_are_hoarded() -> Generator[None]:
    """JAX keeps a compiled program for every shape it has met: gigabytes over the whole suite."""
    yield
    if "jax" in sys.modules:
        sys.modules["jax"].clear_caches()


# Not scoped to the function: hypothesis rightly complains of a fixture that is not renewed for each example.
@pytest.fixture(scope="module", params=LIBRARIES)
def xp(request: pytest.FixtureRequest) -> Library:
    """Each array library in turn: ``xp.name``, ``xp.xp``, ``xp.asarray(x)``, ``xp.numpy(array)``."""
    return LIBRARIES[request.param]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, None, None]:
    callspec = getattr(item, "callspec", None)
    library = callspec.params.get("xp") if callspec else None
    if library in LIBRARIES:
        with for_library(item.obj, library):  # type: ignore[attr-defined]  # a Function has one
            return (yield)
    return (yield)
