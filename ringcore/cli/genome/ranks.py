"""The ranks that share the work, as the command's first process sees them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, TypeVar, cast

import ringcore as rc
from ringcore.cli.genome import encode, estimate, memory
from ringcore.cli.genome.attend import Echo, genome_rank
from ringcore.cli.genome.memory import Machine
from ringcore.cli.genome.settings import Settings

T = TypeVar("T")


@dataclass(frozen=True)
class Survey:
    """What the ranks find before the work begins.

    Attributes
    ----------
    machines : list of Machine
    scores_per_second : float
        Of all ranks together, all at work at the same time.
    """

    machines: list[Machine]
    scores_per_second: float


class Ranks(Protocol):
    """What rank 0 can have all ranks do.

    Attributes
    ----------
    size : int
        P.
    transport : str
        What connects them, as in ``summary.json``.
    metered : int
        On how many of the ranks a meter that is given to `echo` counts.
    """

    @property
    def size(self) -> int: ...  # noqa: D102
    @property
    def transport(self) -> str: ...  # noqa: D102
    @property
    def metered(self) -> int: ...  # noqa: D102

    def survey(self, bases: int, settings: Settings) -> Survey:
        """Look around, and time a piece of the attention over N bases."""
        ...

    def echo(self, codes: encode.Codes, settings: Settings, meter: rc.Meter) -> Echo:
        """The attention of one genome, which only this process has."""
        ...

    def aside(self, work: Callable[[], T]) -> T:
        """Do something that takes long and needs no other rank, and hear of their failures meanwhile."""
        ...

    def dismiss(self) -> None:
        """All has been done."""
        ...

    def at_most(self, ranks: int) -> Ranks:
        """So many of them, where others can be left out; else all."""
        ...


class ThreadRanks:
    """Ranks that are threads of this process.

    Parameters
    ----------
    size : int
    """

    def __init__(self, size: int) -> None:
        self.size = self.metered = size
        self.transport = "one rank" if size == 1 else "threads"

    def survey(self, bases: int, settings: Settings) -> Survey:
        """This machine; one rank already uses all its cores."""
        here = Machine("this machine", tuple(range(self.size)), memory.free())
        return Survey([here], estimate.scores_per_second(bases, settings))

    def echo(self, codes: encode.Codes, settings: Settings, meter: rc.Meter) -> Echo:
        """Run all ranks in this process."""
        return cast(Echo, rc.run_ranks(self.size, genome_rank, codes, codes.size, settings, meter)[0])

    def aside(self, work: Callable[[], T]) -> T:
        """Nobody else is there."""
        return work()

    def dismiss(self) -> None:
        """Nobody waits."""

    def at_most(self, ranks: int) -> ThreadRanks:
        """So many of them."""
        return ThreadRanks(min(self.size, ranks))
