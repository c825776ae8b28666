"""A contender whose ranks are processes: started once, told what to do over a socket, asleep in between.

The harness sends every rank its command and waits for all answers, so that a time has the slowest rank and
some 0.1 ms of sockets in it. Ranks that wait for a command wait for the kernel: they use no core while
others are measured.
"""

from __future__ import annotations

import secrets
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from multiprocessing.connection import Connection, Listener, wait
from pathlib import Path
from typing import Any, NoReturn

from cases import Array, Case, Inputs

from rivals.rival import Call, Unavailable

WORKER = Path(__file__).resolve().parent.parent / "worker.py"
STARTING, ANSWERING = 120.0, 600.0  # seconds


def end(process: subprocess.Popen[bytes]) -> None:
    """First politely: an mpiexec has processes of its own to end."""
    process.terminate()
    try:
        process.wait(5)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


class Team:
    """``size`` ranks of the worker module ``kind``.

    ``launch(command, folder)`` makes command lines that run ``command`` once for each rank; ``folder`` is
    there as long as they are.
    """

    def __init__(self, kind: str, size: int, launch: Callable[[list[str], str], list[list[str]]]) -> None:
        self._kind, self._size, self._launch = kind, size, launch
        self._processes: list[subprocess.Popen[bytes]] = []
        self._ranks: list[Connection] = []
        self._folder: tempfile.TemporaryDirectory[str] | None = None

    def call(
        self, case: Case, arrays: Inputs, setting: Any, join: Callable[[tuple[Array, ...]], Array]
    ) -> Call:
        """Arrays are sent, whole, to every rank; ``join`` makes one array of all ranks' shards."""
        key = case, setting
        self.ask("prepare", key, arrays)

        def to_numpy(_: Any) -> tuple[Array, ...]:
            return tuple(join(shards) for shards in zip(*self.ask("results", key), strict=True))

        return Call(lambda: self.ask("run", key), to_numpy)

    def ask(self, command: str, *arguments: Any) -> list[Any]:
        """Every rank's answer, in the order of ranks.

        Raises
        ------
        Unavailable
            If a rank raises, ends or is silent. The team is ended; the next call starts a new one.
        """
        if not self._ranks:
            self._start()
        try:
            for rank in self._ranks:
                rank.send((command, *arguments))
        except OSError:
            self._fail("a process ended")
        return self._answers(self._ranks, ANSWERING)

    def close(self) -> None:
        """End all processes."""
        for rank in self._ranks:
            rank.close()
        for process in self._processes:
            # A rank ends when its connection does; one that does not is in a call that hangs.
            try:
                process.wait(2 if self._ranks else 0)
            except subprocess.TimeoutExpired:
                end(process)
        self._ranks, self._processes = [], []
        if self._folder is not None:
            self._folder.cleanup()

    def _start(self) -> None:
        self._folder = tempfile.TemporaryDirectory()
        address, key = f"{self._folder.name}/socket", secrets.token_bytes(16)
        command = [sys.executable, str(WORKER), self._kind, address, key.hex()]
        with Listener(address, backlog=self._size, authkey=key) as listener:
            lines = self._launch(command, self._folder.name)
            self._processes = [subprocess.Popen(line) for line in lines]
            try:
                arrived = [self._accept(listener) for _ in range(self._size)]
            except TimeoutError:
                self._fail(f"no {self._size} processes within {STARTING:.0f} s")
        numbers = self._answers(arrived, STARTING)
        self._ranks = [rank for _, rank in sorted(zip(numbers, arrived, strict=True), key=lambda x: x[0])]

    def _accept(self, listener: Listener) -> Connection:
        # Listener has no timeout of its own; its socket has.
        listener._listener._socket.settimeout(STARTING)  # type: ignore[attr-defined]
        return listener.accept()

    def _answers(self, ranks: list[Connection], seconds: float) -> list[Any]:
        answers: dict[int, Any] = {}  # by place in `ranks`
        end = time.monotonic() + seconds
        while len(answers) < len(ranks):
            waiting = {rank: i for i, rank in enumerate(ranks) if i not in answers}
            ready = wait(list(waiting), max(0.0, end - time.monotonic()))
            if not ready:
                self._fail(f"a process was silent for {seconds:.0f} s")
            for rank in (rank for rank in waiting if rank in ready):
                try:
                    good, answer = rank.recv()
                except (EOFError, OSError):
                    self._fail("a process ended")
                if not good:
                    self._fail(answer)
                answers[waiting[rank]] = answer
        return [answers[i] for i in range(len(ranks))]

    def _fail(self, why: str) -> NoReturn:
        self.close()
        raise Unavailable(why)
