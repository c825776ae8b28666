"""``ringcore genome`` as a program in which some ranks meet with a mishap.

python -m tests.cli.genome_fault FAULT RANKS ARGUMENTS...; ranks as in 0,2. A ring's timeout is 2 s here.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NoReturn

import ringcore as rc
from ringcore.cli import main
from ringcore.cli.genome import attend, command, estimate, fasta, files, memory
from ringcore.cli.world import world
from ringcore.launcher import launched

read, write = fasta.read, files._write


def no_memory(*_: object) -> NoReturn:
    raise MemoryError("Unable to allocate 1 TiB")


def broken(*_: object) -> NoReturn:
    raise ZeroDivisionError("a defect")


def full(*_: object) -> NoReturn:
    raise OSError(28, "No space left on device")


def slowly(seconds: float, action: Callable[..., Any]) -> Callable[..., Any]:
    def slow(*arguments: Any) -> Any:
        time.sleep(seconds)
        return action(*arguments)

    return slow


def sends(number: signal.Signals) -> Callable[..., None]:
    return lambda *_: os.kill(os.getpid(), number)


def ended_while_waiting() -> None:
    follow = command.follow

    def followed(ring: rc.Ring) -> int:
        signal.signal(signal.SIGALRM, lambda *_: os.kill(os.getpid(), signal.SIGTERM))
        signal.setitimer(signal.ITIMER_REAL, 0.3)
        return follow(ring)

    command.follow = followed


def put(module: Any, name: str, value: Any) -> Callable[[], None]:
    return lambda: setattr(module, name, value)


FAULTS: Mapping[str, Callable[[], None]] = {
    "none": lambda: None,
    "no memory in the survey": put(estimate, "scores_per_second", no_memory),
    "no memory before attention": put(attend.encode, "keys", no_memory),
    "no memory after attention": put(attend, "bits_per_base", no_memory),
    "no memory to read": put(fasta, "read", no_memory),
    "little memory": put(memory, "free", lambda: 1000),
    "slow cores": put(estimate, "scores_per_second", lambda *_: 1e-3),
    "defect": put(attend, "bits_per_base", broken),
    "cannot read": put(fasta, "read", broken),
    "reads slowly": put(fasta, "read", slowly(5, read)),
    "disk full": put(files, "_write", full),
    "SIGTERM while rank 0 reads": ended_while_waiting,
    **{number.name: put(attend, "bits_per_base", sends(number)) for number in signal.Signals},
}

if __name__ == "__main__":
    fault, ranks, *arguments = sys.argv[1:]
    command.world = partial(world, timeout=2.0)  # type: ignore[attr-defined]
    launch = launched()
    assert launch is not None
    if str(launch.rank) in ranks.split(","):
        FAULTS[fault]()
    elif fault == "SIGTERM while rank 0 reads":
        fasta.read = slowly(20, read)
    sys.exit(main(["genome", *arguments]))
