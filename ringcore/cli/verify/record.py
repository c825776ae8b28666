"""The same findings for programs: one JSON file, complete or not at all."""

from __future__ import annotations

import contextlib
import json
import math
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ringcore.cli.errors import InputError
from ringcore.cli.verify.tally import Group, Tally


def content(tally: Tally, planned: int, about: Mapping[str, Any]) -> dict[str, Any]:
    """What the file holds.

    Parameters
    ----------
    tally : Tally
    planned : int
        How many problems there should have been.
    about : mapping
        Versions, arguments and the like; goes in as it is.
    """
    worst = None
    if tally.worst is not None:
        measure, name = tally.worst
        worst = {"quantity": measure.quantity, "case": name, **_figures(measure.worst, measure.bound)}
    return {
        **about,
        "passed": tally.passed,
        "problems": {"planned": planned, "tried": tally.problems, "failed": len(tally.failures)},
        "worst": worst,
        "sent": {"messages": tally.messages, "bytes": tally.bytes},
        "rows": [row for group in tally.groups.values() for row in _rows(group)],
        "failures": [
            {
                "case": outcome.case.name,
                "problem": str(outcome.case.check),
                "faults": [{"quantity": f.quantity, "message": f.message} for f in outcome.faults],
            }
            for outcome in tally.failures
        ],
    }


def _rows(group: Group) -> list[dict[str, Any]]:
    """One for each quantity that was measured."""
    return [
        {
            "section": group.section,
            "row": group.row,
            "quantity": quantity,
            "problems": group.problems,
            **_figures(measure.worst, measure.bound),
            "passed": quantity not in group.faulty,
        }
        for quantity, measure in group.worst.items()
    ]


def _figures(worst: float, bound: float) -> dict[str, float | None]:
    """JSON has no infinity: null is where there should be a number and is none."""
    return {"worst": worst if math.isfinite(worst) else None, "bound": bound}


def check(path: Path) -> None:
    """Make sure, before the work begins, that the file can be written.

    Raises
    ------
    InputError
        If it cannot.
    """
    path = path.resolve()  # a link stays one
    if path.is_dir():
        raise InputError(f"--json must be a file. Got {path}, a folder. Choose a name in it.")
    if path.exists() and not path.is_file():
        raise InputError(f"--json must be a file. Got {path}, a device or a pipe. Choose another name.")
    try:
        with tempfile.TemporaryFile(dir=path.parent, prefix=".ringcore-"):
            pass
    except OSError as error:
        raise _unwritable(path, error) from error


def write(path: Path, value: Mapping[str, Any]) -> None:
    """Write the file: a reader sees the old one or the whole new one.

    Raises
    ------
    InputError
        If the system refuses; the old file is still there.
    """
    path = path.resolve()
    text = json.dumps(value, indent=2, allow_nan=False) + "\n"
    name = None
    try:
        with tempfile.NamedTemporaryFile(
            "w", dir=path.parent, prefix=".ringcore-", delete=False, encoding="utf-8"
        ) as file:
            name = file.name
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        Path(name).chmod(0o666 & ~_umask())
        Path(name).replace(path)
    except BaseException as error:
        if name is not None:
            with contextlib.suppress(OSError):
                Path(name).unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise _unwritable(path, error) from error
        raise


def _umask() -> int:
    """What a file made in the ordinary way would not be allowed; can only be read by setting it."""
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def _unwritable(path: Path, error: OSError) -> InputError:
    return InputError(
        f"--json {path} cannot be written to: {error.strerror or error}. "
        "Choose a folder that you may write to."
    )
