"""For tests of ringcore and of code that uses it: oracle, assertions, problems, lockstep.

Names load on first use, because the pytest plug-in `ringcore.testing.plugin` is imported by every pytest
run of an environment. `ringcore.testing.strategies` needs hypothesis and is imported by its own name.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ringcore.testing import oracle as oracle
    from ringcore.testing.arrays import from_numpy, half_ulp, round_to, to_numpy
    from ringcore.testing.assertions import (
        assemble,
        assert_no_growth,
        assert_within_contract,
        check_attention,
        check_no_growth,
        nrms,
    )
    from ringcore.testing.contents import digest
    from ringcore.testing.drawn_mask import And, Call, DenseBits, DrawnMask, Not, Or, evaluate
    from ringcore.testing.events import HARD_CASES, assert_occurred
    from ringcore.testing.oracle import Results
    from ringcore.testing.problem import Poison, Problem, Shards
    from ringcore.testing.seeds import lockstep_settings, register_mpi_profile
    from ringcore.testing.solving import solve, solve_on
    from ringcore.testing.verdicts import LockstepDivergence, LockstepFailure, lockstep

_PLACES = {
    "arrays": ("from_numpy", "half_ulp", "round_to", "to_numpy"),
    "assertions": (
        "assemble",
        "assert_no_growth",
        "assert_within_contract",
        "check_attention",
        "check_no_growth",
        "nrms",
    ),
    "contents": ("digest",),
    "drawn_mask": ("And", "Call", "DenseBits", "DrawnMask", "Not", "Or", "evaluate"),
    "events": ("HARD_CASES", "assert_occurred"),
    "verdicts": ("LockstepDivergence", "LockstepFailure", "lockstep"),
    "oracle": ("Results",),
    "problem": ("Poison", "Problem", "Shards"),
    "seeds": ("lockstep_settings", "register_mpi_profile"),
    "solving": ("solve", "solve_on"),
}
_MODULE_OF = {name: module for module, names in _PLACES.items() for name in names}

__all__ = [
    "HARD_CASES",
    "And",
    "Call",
    "DenseBits",
    "DrawnMask",
    "LockstepDivergence",
    "LockstepFailure",
    "Not",
    "Or",
    "Poison",
    "Problem",
    "Results",
    "Shards",
    "assemble",
    "assert_no_growth",
    "assert_occurred",
    "assert_within_contract",
    "check_attention",
    "check_no_growth",
    "digest",
    "evaluate",
    "from_numpy",
    "half_ulp",
    "lockstep",
    "lockstep_settings",
    "nrms",
    "oracle",
    "register_mpi_profile",
    "round_to",
    "solve",
    "solve_on",
    "to_numpy",
]


def __getattr__(name: str) -> Any:
    if name == "oracle":
        return importlib.import_module("ringcore.testing.oracle")
    if name in _MODULE_OF:
        value = getattr(importlib.import_module(f"ringcore.testing.{_MODULE_OF[name]}"), name)
        globals()[name] = (
            value  # a submodule of the same name (lockstep, solve) would take its place otherwise
        )
        return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
