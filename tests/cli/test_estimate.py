from __future__ import annotations

import time
import tracemalloc

import numpy as np
import pytest

import ringcore as rc
from ringcore.cli.genome import attend, estimate, memory, settings


def test_memory_needed_is_what_the_attention_takes() -> None:
    codes = np.random.default_rng(1).integers(0, 4, 6_000).astype(np.uint8)
    for ranks, context in ((1, 32), (3, 64)):
        asked = settings.choose(codes.size, context)
        tracemalloc.start()
        rc.run_ranks(ranks, attend.genome_rank, codes[:50], asked, rc.Meter())
        tracemalloc.reset_peak()
        rc.run_ranks(ranks, attend.genome_rank, codes, asked, rc.Meter())
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        print(memory.needed(codes.size, asked, ranks) / peak)
        assert 0.5 * peak < memory.needed(codes.size, asked, ranks) < 2 * peak


def test_free_memory_is_less_than_all_and_none_where_nobody_tells(monkeypatch: pytest.MonkeyPatch) -> None:
    free = memory.free()
    assert free is None or 2**20 < free < 2**50
    monkeypatch.setattr(memory.Path, "read_text", lambda _: "MemTotal: 5 kB\n")
    assert memory.free() is None
    monkeypatch.setattr(memory.Path, "read_text", lambda _: "MemTotal: 5 kB\nMemAvailable: 3 kB\n")
    assert memory.free() == 3 * 1024


def test_the_time_of_a_record_with_hardly_any_base_is_the_ranks_meeting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[int] = []

    def slow(ranks: int, *_: object) -> None:
        seen.append(ranks)
        time.sleep(0.02)

    monkeypatch.setattr(rc, "run_ranks", slow)
    asked = settings.choose(100)
    assert 0.02 <= estimate.overhead(4, asked) < 1
    assert estimate.overhead(160, asked) >= 2  # 100 times what 16 ranks take
    assert seen == [4, 16]
