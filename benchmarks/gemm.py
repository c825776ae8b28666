"""What the machine's matrix unit gives: as many 2048^3 float32 products at a time as there are cores.

Each product has one thread, all threads are of one process; the figure is of the slowest of them, so that a
core which somebody else uses shows.
"""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import threadpoolctl

SIZE = 2048


class Gemm:
    """Measures the rate again and again, on the same matrices."""

    def __init__(self, cores: int) -> None:
        rng = np.random.default_rng(0)
        self.flops = 2 * SIZE**3 * cores
        self._a, self._b = (rng.standard_normal((SIZE, SIZE), dtype=np.float32) for _ in range(2))
        self._into = [np.empty((SIZE, SIZE), np.float32) for _ in range(cores)]
        self._pool = ThreadPoolExecutor(cores)
        self._blas = threadpoolctl.ThreadpoolController()

    def seconds(self) -> float:
        """Until the last product is there."""
        with self._blas.limit(limits=1, user_api="blas"):
            begin = time.perf_counter()
            for _ in self._pool.map(lambda into: np.matmul(self._a, self._b, out=into), self._into):
                pass
            return time.perf_counter() - begin
