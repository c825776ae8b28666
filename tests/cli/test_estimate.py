from __future__ import annotations

import time
import tracemalloc

import numpy as np
import pytest

import ringcore as rc
from ringcore.cli.genome import encode, estimate, memory, settings
from ringcore.cli.genome.ranks import ThreadRanks
from ringcore.cores import cores


def test_memory_needed_is_what_the_attention_takes() -> None:
    codes = np.random.default_rng(1).integers(0, 4, 6_000).astype(np.uint8)
    for ranks, context in ((1, 32), (3, 64)):
        asked = settings.choose(codes.size, context)
        tracemalloc.start()
        ThreadRanks(ranks).echo(codes[:50], asked, rc.Meter())
        tracemalloc.reset_peak()
        ThreadRanks(ranks).echo(codes, asked, rc.Meter())
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert 0.5 * peak < memory.needed(codes.size, asked, range(ranks), ranks) < 2 * peak


def test_free_memory_is_less_than_all_and_none_where_nobody_tells(monkeypatch: pytest.MonkeyPatch) -> None:
    free = memory.free()
    assert free is None or 2**20 < free < 2**50
    monkeypatch.setattr(memory.Path, "read_text", lambda _: "MemTotal: 5 kB\n")
    assert memory.free() is None
    monkeypatch.setattr(memory.Path, "read_text", lambda _: "MemTotal: 5 kB\nMemAvailable: 3 kB\n")
    assert memory.free() == 3 * 1024


def test_the_memory_of_all_ranks_is_shared_among_their_machines() -> None:
    asked = settings.choose(10**6)
    whole = memory.needed(10**6, asked, range(4), 4)
    parts = [memory.needed(10**6, asked, ranks, 4) for ranks in ((0, 1), (2,), (3,))]
    assert sum(parts) == whole and parts[1] == parts[2] < parts[0] / 2
    assert memory.needed(10**6, asked, [7], 8) == pytest.approx(parts[1] / 2)
    assert memory.machine() == memory.machine() != ("", "")


def test_the_time_of_a_record_with_hardly_any_base_is_the_ranks_meeting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[tuple[int, int]] = []

    def slow(ranks: ThreadRanks, codes: encode.Codes, *_: object) -> None:
        seen.append((ranks.size, codes.size))
        time.sleep(0.02)

    monkeypatch.setattr(ThreadRanks, "echo", slow)
    asked = settings.choose(100)
    assert 0.02 <= estimate.overhead(ThreadRanks(4), asked) < 1
    assert estimate.overhead(ThreadRanks(160), asked) >= 2  # 100 times what 16 ranks take
    assert seen == [(4, 4), (16, 16)]


def test_the_piece_that_is_timed_fits_the_cores_of_this_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    shapes: list[tuple[int, int, int]] = []

    def attention(q: encode.Floats, k: encode.Floats, v: encode.Floats, **_: object) -> None:
        assert len(k) == len(v)
        shapes.append((len(q), len(k), v.shape[1] - 4))
        time.sleep(0.01)

    monkeypatch.setattr(rc, "attention", attention)
    for mine in (1, 3):
        before = cores.set(mine)
        assert 0 < estimate.scores_per_second(10**6, settings.choose(10**6)) < shapes[-1][0] * 32768 / 0.01
        cores.reset(before)
    assert shapes == [(512, 32768, 24)] * 2 + [(1536, 32768, 24)] * 2
    estimate.scores_per_second(10, settings.choose(10))
    assert shapes[-1] == (11, 22, 8)
