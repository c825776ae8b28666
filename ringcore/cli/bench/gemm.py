"""What the matrix unit gives: as many 2048^3 products at a time as there are cores, each with one thread."""

from __future__ import annotations

import os
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import threadpoolctl

SIZE = 2048


class Gemm:
    """Measures the rate of this process again and again, on the same matrices.

    Parameters
    ----------
    cores : int
        How many products at a time.
    """

    def __init__(self, cores: int) -> None:
        self.cores = cores
        self._pool = ThreadPoolExecutor(cores, "ringcore-bench")
        self._matrices: dict[str, list[np.ndarray]] = {}

    @property
    def flops(self) -> int:
        """Of one measurement."""
        return 2 * SIZE**3 * self.cores

    def prepare(self, dtype: str) -> None:
        """Make the matrices, and multiply once: so that the memory is there, and BLAS has started."""
        if dtype not in self._matrices:
            rng = np.random.default_rng(0)
            self._matrices.clear()
            a, b = (rng.standard_normal((SIZE, SIZE), dtype=np.float32).astype(dtype) for _ in range(2))
            self._matrices[dtype] = [a, b, *(np.empty_like(a) for _ in range(self.cores))]
            self.seconds(dtype)

    def seconds(self, dtype: str) -> float:
        """Until the last product is there."""
        a, b, *into = self._matrices[dtype]
        with threadpoolctl.ThreadpoolController().limit(limits=1, user_api="blas"):
            begin = time.perf_counter()
            for _ in self._pool.map(lambda out: np.matmul(a, b, out=out), into):
                pass
            return time.perf_counter() - begin

    def close(self) -> None:
        """End the threads."""
        self._pool.shutdown()


def cores_of(share: int | None) -> int:
    """Cores that kernels of this process use: its share, all by default; no more than BLAS may use."""
    here = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    infos = threadpoolctl.threadpool_info()
    threads = [info["num_threads"] for info in infos if info["user_api"] == "blas"]
    return max(1, min(share or here, max(threads, default=here)))
