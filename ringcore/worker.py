"""A thread that computes for another one, which does something else meanwhile.

A new thread for each piece of work would take its time to start, and begin with a cold stack.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import Context, copy_context
from queue import SimpleQueue
from threading import Event, Lock, Thread
from typing import Any

from ringcore.cores import abandoned


class Task:
    """Work that is being done."""

    __slots__ = ("_context", "_done", "_error", "_result", "_work")

    def __init__(self, work: Callable[[], Any], context: Context) -> None:
        self._work: Callable[[], Any] | None = work
        self._context: Context | None = context
        self._result: Any = None
        self._error: BaseException | None = None
        self._done = Lock()
        self._done.acquire()

    def wait(self, seconds: float) -> bool:
        """Whether it is done, after so long at most. Once only."""
        return self._done.acquire(timeout=seconds)

    def result(self) -> Any:
        """What the work returned, or raised; once only, as nothing shall be held here."""
        result, error, self._result, self._error = self._result, self._error, None, None
        try:
            if error is not None:
                raise error
            return result
        finally:
            del error  # else it would hold this frame, which holds it

    def execute(self) -> None:
        """Do the work, in the worker's thread."""
        work, context, self._work, self._context = self._work, self._context, None, None
        assert work is not None
        assert context is not None
        try:
            self._result = context.run(work)
        except BaseException as error:
            self._error = error
        del work, context  # before the caller goes on: what it has let go of shall be gone
        self._done.release()


class Worker:
    """One lasting thread, started when there is work, also in a forked child. For one caller at a time."""

    def __init__(self) -> None:
        self._thread: Thread | None = None
        self._tasks: SimpleQueue[Task | None] = SimpleQueue()
        self._useless = Event()

    def begin(self, work: Callable[[], Any]) -> Task:
        """Have work done in the caller's context: NumPy's errstate, `ringcore.cores`."""
        context = copy_context()
        context.run(abandoned.set, self._useless)
        if self._thread is None or not self._thread.is_alive():
            self._tasks = SimpleQueue()  # a forked child's is not in order
            self._thread = Thread(target=_serve, args=(self._tasks,), name="ringcore-compute", daemon=True)
            self._thread.start()
        task = Task(work, context)
        self._tasks.put(task)
        return task

    def abandon(self) -> None:
        """Nobody waits for what is being done any more: leave the thread to end by itself."""
        self._useless.set()
        self._useless = Event()
        self._tasks.put(None)
        self._thread = None

    def close(self) -> None:
        """End the thread, which is idle; the next work starts another one."""
        thread, self._thread = self._thread, None
        if thread is not None:
            self._tasks.put(None)
            thread.join()

    def __del__(self) -> None:
        self._tasks.put(None)  # no join: the garbage collector may run anywhere


def _serve(tasks: SimpleQueue[Task | None]) -> None:
    while (task := tasks.get()) is not None:
        task.execute()
        del task
