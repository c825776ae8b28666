"""One rank of a contender whose ranks are processes. Started by `rivals.team`, not by hand.

    worker.py KIND ADDRESS KEY

KIND is a module of ``rivals`` with ``rank()``, which returns this rank's number and
``prepare(case, inputs, setting)``, which returns ``(run, shards)``: what is timed, and what makes NumPy
arrays of what it returned.
"""

from __future__ import annotations

import sys
import traceback
from contextlib import suppress
from importlib import import_module
from multiprocessing.connection import Client
from typing import Any


def main() -> None:
    _, kind, address, key = sys.argv
    connection = Client(address, authkey=bytes.fromhex(key))
    calls: dict[Any, Any] = {}  # of one case, by case and setting
    results: Any = None
    try:
        number, prepare = import_module(f"rivals.{kind}").rank()
        connection.send((True, number))
        while True:
            try:
                command, key, *arrays = connection.recv()
            except EOFError:
                return
            answer = None
            if command == "prepare":
                results = None
                calls = {other: call for other, call in calls.items() if other[0] == key[0]}
                calls[key] = prepare(key[0], *arrays, key[1])
            elif command == "run":
                results = calls[key][0]()
            else:
                answer = calls[key][1](results)
            connection.send((True, answer))
    except Exception as error:
        traceback.print_exc()
        with suppress(OSError):  # the harness has heard of it from another rank
            connection.send((False, f"{type(error).__name__}: {error}"))
        raise SystemExit(1) from None


if __name__ == "__main__":
    main()
