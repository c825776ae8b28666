"""Counting what kernels do, where they do it."""

from __future__ import annotations

import threading


class Meter:
    """Tiles, scores and FLOPs that kernels have executed so far; thread-safe.

    Pass one to `attention` (``meter=``) and read it whenever you like, also from another thread
    while the call runs: this is how a progress bar is driven. Several calls, and several ranks of
    one process, may share a meter.

    Attributes
    ----------
    tiles : int
        Score tiles computed; tiles that nobody sees are skipped and not counted.
    scores : int
        Query-key pairs in these tiles, over all batch rows and query heads.
    flops : int
        Floating-point operations of the matrix products (a multiply-add is two).

    Examples
    --------
    >>> meter = Meter()
    >>> meter.add(tiles=1, scores=64, flops=4096)
    >>> meter.tiles, meter.scores, meter.flops
    (1, 64, 4096)
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.tiles = 0
        self.scores = 0
        self.flops = 0

    def add(self, *, tiles: int, scores: int, flops: int) -> None:
        """Add work that has just been done."""
        with self._lock:
            self.tiles += tiles
            self.scores += scores
            self.flops += flops
