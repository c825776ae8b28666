"""The cores: tasks on a pool of threads, with BLAS kept to one thread in each.

A pool over independent tiles keeps all cores busy where BLAS's own threads would meet at a barrier
after every product. The number of workers is the number of threads that the caller lets BLAS use
(OMP_NUM_THREADS and the like, threadpoolctl), and at most this rank's share of the machine
(`ringcore.cores`): nothing else needs to be set.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager

import numpy as np
import threadpoolctl
from threadpoolctl import ThreadpoolController

from ringcore.cores import abandoned
from ringcore.cores import cores as cores_of_this_rank

Task = Callable[[], None]

_WORTH_A_THREAD = 1_000_000
"""FLOPs of a task. Below, it is mostly Python, and only one thread runs Python: many would be slower."""


class Cores:
    """The process's compute threads. BLAS's thread count is process-wide, so there is one of these."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users = 0
        self._threads = 1
        self._controller: ThreadpoolController | None = None
        self._limit: ThreadpoolController | None = None
        self._executor: ThreadPoolExecutor | None = None
        self._size = 0

    def run(self, tasks: Sequence[Task], flops: int) -> None:
        """Run independent tasks of together about ``flops`` operations on all cores.

        The first exception is raised when all tasks have ended.
        """
        with self._single_threaded_blas() as threads:
            if threads == 1 or len(tasks) <= 1 or flops < _WORTH_A_THREAD * len(tasks):
                _work(iter(tasks), threading.Lock(), abandoned.get())
                return
            queue, lock = iter(tasks), threading.Lock()
            workers = min(threads, len(tasks))
            useless = abandoned.get() or threading.Event()
            futures = [self._pool(threads).submit(_work, queue, lock, useless) for _ in range(workers)]
            try:
                errors = [future.exception() for future in futures]
            except BaseException:  # Ctrl-C: nobody wants the rest, nor may it be written any more
                useless.set()
                wait(futures)
                raise
        for error in errors:
            if error is not None:
                raise error

    def threads(self) -> int:
        """How many tasks run at a time."""
        with self._single_threaded_blas() as threads:
            return threads

    @contextmanager
    def _single_threaded_blas(self) -> Iterator[int]:
        """Limit BLAS from the first user in to the last one out, who restores the caller's setting.

        Ranks that are threads of one process come and go at different times: had each restored what
        it found, the last one would leave the limit behind.
        """
        with self._lock:
            if self._users == 0:
                if self._controller is None:
                    self._controller = ThreadpoolController()
                blas = self._controller.select(user_api="blas")
                counts = [x["num_threads"] for x in blas.info() if x.get("threading_layer") != "disabled"]
                self._threads = min(counts, default=available_cores())  # the caller may have limited some
                with _any_thread_may_limit():
                    self._limit = blas.limit(limits=1)
            self._users += 1
            threads = min(self._threads, cores_of_this_rank.get() or self._threads)
        try:
            yield threads
        finally:
            with self._lock:
                self._users -= 1
                if self._users == 0:
                    self._restore()

    def _restore(self) -> None:
        if self._limit is not None:
            with _any_thread_may_limit():
                self._limit.restore_original_limits()

    def look_again(self) -> None:
        """Find the BLAS libraries anew when the next user comes in: one has been loaded."""
        with self._lock:
            self._controller = None

    def _pool(self, threads: int) -> ThreadPoolExecutor:
        with self._lock:
            if self._executor is None or self._size < threads:
                self._executor, self._size = ThreadPoolExecutor(threads, "ringcore-numpy"), threads
            return self._executor

    def forget(self) -> None:
        """In a forked child the parent's threads are not there, nor anybody who would restore its limit."""
        if self._users:
            self._restore()
        self._executor, self._users, self._lock = None, 0, threading.Lock()


@contextmanager
def _any_thread_may_limit() -> Iterator[None]:
    """Let the calling thread change OpenBLAS's setting, whoever has changed it last, and whoever does next.

    Newer threadpoolctl lets one thread at a time change it and silently ignores all others. Of the users here
    the first one in and the last one out are any two threads, and must agree through `Cores` alone.
    """
    release = getattr(threadpoolctl.OpenBLASController, "clear_controlling_thread", None)
    if release is None:
        yield
        return
    release(force=True)
    try:
        yield
    finally:
        release(force=True)


def available_cores() -> int:
    """Cores that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _work(queue: Iterator[Task], lock: threading.Lock, useless: threading.Event | None) -> None:
    """Take tasks until none is left, or needed. Which worker takes which does not change any number."""
    with np.errstate(all="ignore"):
        while useless is None or not useless.is_set():
            with lock:
                task = next(queue, None)
            if task is None:
                return
            task()


cores = Cores()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=cores.forget)
