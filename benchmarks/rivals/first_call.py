"""A contender's first call in a case: never timed, always checked."""

from __future__ import annotations

from typing import Any

from cases import Case, Inputs
from oracle import LIMIT, Oracle

from rivals.rival import Call, Rival, Unavailable


def first_call(
    rival: Rival, case: Case, arrays: Inputs, truth: Oracle, setting: Any
) -> tuple[Call, dict[str, float]]:
    """The call, and the errors of its answer.

    Raises
    ------
    Unavailable
        If it cannot run this case, or its answer is wrong.
    """
    try:
        call = rival.prepare(case, arrays, setting)
        errors = truth.errors(call.arrays(call.run()))
    except (MemoryError, RuntimeError, TypeError, ValueError) as error:
        raise Unavailable(f"{type(error).__name__}: {error}".partition("\n")[0]) from error
    if max(errors.values()) > LIMIT:
        raise Unavailable(f"wrong answer: {errors}")
    return call, errors
