"""What is found about one problem."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ringcore.cli.verify.cases import Case


@dataclass(frozen=True)
class Measure:
    """How far a quantity is from the reference, and how far it may be.

    Attributes
    ----------
    quantity : str
        "out", "lse", "dq", "dk", "dv"; "y", "dx", "dw", "db" of a feedforward layer; "rms out" and so on.
    worst : float
        The largest error in units of u cond; for "rms ..." the ring's error over that of dense attention.
        Infinite where there should be a number and is none.
    bound : float
        What it may be.
    """

    quantity: str
    worst: float
    bound: float

    @property
    def share(self) -> float:
        """The part of the bound that is used up."""
        return self.worst / self.bound


@dataclass(frozen=True)
class Fault:
    """Something that breaks the contract.

    Attributes
    ----------
    quantity : str
        As in `Measure`; "repeat" where the same call gave other bits, "wire" where nothing was sent or the
        ranks disagree, "error" for an exception, "peer" for one that only says that another rank has failed.
    message : str
    """

    quantity: str
    message: str


@dataclass(frozen=True)
class Outcome:
    """What is found about one problem.

    Attributes
    ----------
    case : Case
    measures, faults
    messages, bytes : int
        Sent by all ranks, in one solution.
    stops : bool
        Whether the ring is of no use afterwards.
    """

    case: Case
    measures: tuple[Measure, ...] = ()
    faults: tuple[Fault, ...] = ()
    messages: int = 0
    bytes: int = 0
    stops: bool = False

    @property
    def passed(self) -> bool:
        """Whether the contract holds."""
        return not self.faults
