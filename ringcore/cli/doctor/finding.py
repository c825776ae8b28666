"""One line of the report, and how probes become such lines whatever happens to them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

Status = Literal["ok", "note", "warning", "problem"]


@dataclass(frozen=True)
class Finding:
    """What was found out about one thing.

    Attributes
    ----------
    section, name, value : str
    status : str
        'note': worth knowing, or missing and not needed by everybody; 'warning': works, but not as well as it
        could; 'problem': does not work.
    cure : str, optional
        What to do, often a command to paste; a line for each of several ways.
    """

    section: str
    name: str
    value: str
    status: Status = "ok"
    cure: str | None = None


Probe = Callable[..., Iterator[Finding]]


def findings(section: str, probe: Probe, *args: Any) -> Iterator[Finding]:
    """What a probe finds; that it failed, too, is a finding.

    Examples
    --------
    >>> def probe():
    ...     yield Finding("BLAS", "threads", "4")
    ...     raise OSError("no such file")
    >>> for found in findings("BLAS", probe):
    ...     print(found.name, found.status, found.value)
    threads ok 4
    probe warning could not be found out: OSError: no such file
    """
    try:
        yield from probe(*args)
    except Exception as error:
        yield failed(section, probe.__name__, error)


def failed(section: str, name: str, error: Exception, status: Status = "warning") -> Finding:
    """The finding that something could not be found out."""
    return Finding(section, name, f"could not be found out: {spoken(error)}", status)


def spoken(error: BaseException) -> str:
    """An exception in one line.

    Examples
    --------
    >>> spoken(RuntimeError("cannot load\\nlibmpi.so.12: not found"))
    'RuntimeError: cannot load'
    """
    first = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
    return f"{type(error).__name__}: {first}" if first else type(error).__name__
