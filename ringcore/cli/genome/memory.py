"""How much memory the attention needs, and how much is free."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ringcore.cli.genome import encode
from ringcore.cli.genome.settings import Settings

_BOOT = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True)
class Machine:
    """A machine, and which ranks share it.

    Attributes
    ----------
    name : str
        As in messages.
    ranks : tuple of int
    free : int or None
        Bytes that it can give; None where it does not tell.
    """

    name: str
    ranks: tuple[int, ...]
    free: int | None


def of_each(bases: int, settings: Settings, ranks: int) -> int:
    """Bytes that each of the ranks holds at most.

    float32 queries, keys, values and outputs, keys and values twice (as they are built, and as they
    travel); the bases that they are made from.
    """
    positions = bases + 1
    row = 4 * (4 * settings.context + 4 + encode.bits_needed(2 * positions))
    return -(-positions * (5 * row + 4) // ranks)


def of_first(bases: int) -> int:
    """Bytes that rank 0 holds besides: some 100 a position, when partners become repeats."""
    return 100 * (bases + 1)


def needed(bases: int, settings: Settings, ranks: Sequence[int], of: int) -> int:
    """Bytes that some of the ranks hold together, beside the genome's file.

    Parameters
    ----------
    bases : int
        N.
    settings : Settings
    ranks : sequence of int
        Those that share a machine.
    of : int
        All ranks, P.

    Examples
    --------
    >>> settings = Settings(context=16, sharpness=3.0)
    >>> [round(needed(154_478, settings, ranks, of=4) / 1e6) for ranks in (range(4), [0], [3])]
    [288, 84, 68]
    """
    return len(ranks) * of_each(bases, settings, of) + (of_first(bases) if 0 in ranks else 0)


def free() -> int | None:
    """Bytes that this machine can give without swapping; None where the system does not tell."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        return next(1024 * int(line.split()[1]) for line in lines if line.startswith("MemAvailable:"))
    except (OSError, ValueError, StopIteration):
        return None


def machine() -> tuple[str, str]:
    """This machine's name, and what tells it from others that may bear the same name, as containers do."""
    name = socket.gethostname()
    try:
        return name, _BOOT.read_text().strip()
    except OSError:
        return name, name


def spoken(size: int) -> str:
    """A number of bytes as people say it.

    Examples
    --------
    >>> spoken(20_000), spoken(288_300_000), spoken(2_640_000_000_000)
    ('1 MB', '288 MB', '2,640 GB')
    """
    if size < 1e9:
        return f"{max(1, round(size / 1e6))} MB"
    return f"{size / 1e9:.1f} GB" if size < 1e11 else f"{size / 1e9:,.0f} GB"
