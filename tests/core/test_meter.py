"""The meter counts what is added to it, from many threads and while others read."""

from __future__ import annotations

import threading
import time

import ringcore as rc


def test_it_starts_at_nothing_and_adds_up() -> None:
    meter = rc.Meter()
    assert (meter.tiles, meter.scores, meter.flops) == (0, 0, 0)
    for n in (1, 2, 3):
        meter.add(tiles=n, scores=10 * n, flops=100 * n)
    assert (meter.tiles, meter.scores, meter.flops) == (6, 60, 600)


class Slow(int):
    """A number that lets other threads run while it is added."""

    def __radd__(self, other: int) -> int:
        time.sleep(0)
        return int(other) + int(self)


def test_no_count_is_lost_between_threads() -> None:
    meter, threads, times = rc.Meter(), 4, 25
    start = threading.Barrier(threads)

    def work() -> None:
        start.wait()
        for _ in range(times):
            meter.add(tiles=Slow(1), scores=Slow(2), flops=Slow(3))

    workers = [threading.Thread(target=work) for _ in range(threads)]
    for worker in workers:
        worker.start()
    seen = []
    while any(worker.is_alive() for worker in workers):
        seen.append(meter.tiles)
        time.sleep(1e-4)
    for worker in workers:
        worker.join()
    assert (meter.tiles, meter.scores, meter.flops) == tuple(threads * times * n for n in (1, 2, 3))
    assert seen == sorted(seen), "a reader never sees it go back"
