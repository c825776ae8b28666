"""How much memory the attention needs, and how much is free."""

from __future__ import annotations

from pathlib import Path

from ringcore.cli.genome import encode
from ringcore.cli.genome.settings import Settings


def needed(bases: int, settings: Settings, ranks: int) -> int:
    """Bytes that the ranks together hold at most, beside the genome's file.

    float32 queries, keys, values and outputs, keys and values twice (as they are built, and as they
    travel); the two strands on every rank; some 100 bytes a position when partners become repeats.

    Examples
    --------
    >>> round(needed(154_478, Settings(context=16, sharpness=3.0), ranks=1) / 1e6)
    288
    """
    positions = bases + 1
    row = 4 * (4 * settings.context + 4 + encode.bits_needed(2 * positions))
    return 5 * positions * row + 4 * positions * ranks + 100 * positions


def free() -> int | None:
    """Bytes that this machine can give without swapping; None where the system does not tell."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        return next(1024 * int(line.split()[1]) for line in lines if line.startswith("MemAvailable:"))
    except (OSError, ValueError, StopIteration):
        return None


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
