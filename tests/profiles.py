"""How many examples hypothesis tries, by profile and array library.

Tests need do nothing: a property takes 300 examples, and a sixth of that (jax: 8) where its fixture
``xp`` is not plain NumPy. A costly one says ``@settings(max_examples=examples(60))``: 60 on NumPy, 10
on the others, 17 times as many in the profile ``slow``. Under ``mpirun`` the profile is ``mpi``, with two
fifteenths of all this.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from hypothesis import HealthCheck, settings

from ringcore.launcher import launched
from ringcore.testing import register_mpi_profile

DEFAULT = 300
SLOW = 5000
MPI = 40

# Examples per DEFAULT on NumPy. JAX compiles anew for each shape: its properties draw from few, fixed shapes.
PER_LIBRARY = {"numpy": DEFAULT, "numpy-readonly": 50, "array-api-strict": 50, "torch": 50, "jax": 8}

# Where hypothesis keeps the settings of a test; there is no public way to vary them by parameter.
_SETTINGS = "_hypothesis_internal_use_settings"


def register() -> str:
    """Register the profiles default, ci, slow and mpi, load the chosen one and return its name.

    The environment variable HYPOTHESIS_PROFILE chooses; without it, processes that a launcher has started
    have ``mpi``, CI has ``ci`` and people ``default``.
    """
    common = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow], "print_blob": True}
    settings.register_profile("default", max_examples=DEFAULT, derandomize=False, **common)
    settings.register_profile("ci", max_examples=DEFAULT, derandomize=True, **common)
    settings.register_profile("slow", max_examples=SLOW, derandomize=False, **common)
    register_mpi_profile(max_examples=MPI, derandomize="CI" in os.environ, print_blob=True)
    alone = "ci" if os.environ.get("CI") else "default"
    name = os.environ.get("HYPOTHESIS_PROFILE") or ("mpi" if launched() else alone)
    settings.load_profile(name)
    return name


def examples(count: int) -> int:
    """``count`` in the profile default, in proportion in the others: for ``settings(max_examples=...)``."""
    return max(1, round(count * settings().max_examples / DEFAULT))


@contextmanager
def for_library(test: Callable[..., Any], library: str) -> Iterator[None]:
    """Give ``test`` the share of its examples that ``library`` has, for as long as the block runs."""
    test = getattr(test, "__func__", test)  # a method has no attributes of its own
    own = getattr(test, _SETTINGS, None)
    if own is None:  # no property
        yield
        return
    share = max(1, round(own.max_examples * PER_LIBRARY[library] / DEFAULT))
    setattr(test, _SETTINGS, settings(own, max_examples=share))
    try:
        yield
    finally:
        setattr(test, _SETTINGS, own)
