"""The chunk of tokens of a feedforward layer, from the size of the cache."""

from __future__ import annotations

from typing import Any

import pytest
from ringcore_numpy import NumpyBackend, chunks

FEWEST, MOST = 512, 2048


@pytest.mark.parametrize("cache", [1 << 20, 8 << 20, 32 << 20, 256 << 20])
def test_three_hidden_blocks_fit_unless_that_were_too_few_tokens(
    monkeypatch: pytest.MonkeyPatch, cache: int
) -> None:
    monkeypatch.setattr(chunks, "last_level_bytes", lambda: cache)
    seen = set()
    for features in (0, 1, 64, 512, 2048, 3000, 16384, 10**6):
        for itemsize in (4, 8):
            chunk = NumpyBackend().feedforward_chunk(features, itemsize)
            assert FEWEST <= chunk <= MOST
            assert chunk == FEWEST or 3 * chunk * features * itemsize < cache
            assert chunk == MOST or 5 * chunk * features * itemsize > cache, "no smaller than need be"
            seen.add(chunk)
    assert {FEWEST, MOST} <= seen and (len(seen) > 2 or cache == 1 << 20)


@pytest.mark.parametrize("answer", [0, -1, ValueError, AttributeError])
def test_a_system_that_does_not_say(monkeypatch: pytest.MonkeyPatch, answer: Any) -> None:
    def sysconf(name: str) -> int:
        if isinstance(answer, int):
            return answer
        raise answer

    monkeypatch.setattr(chunks.os, "sysconf", sysconf)
    assert chunks.last_level_bytes.__wrapped__() == 32 << 20
