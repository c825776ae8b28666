"""Problems solved on ranks: threads made for the purpose, or a ring that is there."""

from __future__ import annotations

from dataclasses import dataclass

import array_api_compat.numpy as xp
import numpy as np
import pytest

import ringcore as rc
from ringcore.block import GenericBackend
from ringcore.testing import Call, DrawnMask, Problem, check_attention, solve, solve_on

PROBLEM = Problem(
    xp=xp,
    q_layout=rc.Layout.zigzag(length=11, ranks=3),
    mask=DrawnMask(Call("causal")),
    heads=(4, 2),
    tile=(3, 2),
)


@dataclass(frozen=True)
class Seen(GenericBackend):
    """Keeps the tiles that it has been made with."""

    tiles = []  # noqa: RUF012

    def attend(self, *args):
        self.tiles.append(self.tile)
        return super().attend(*args)


def test_a_ring_that_is_there_gives_what_threads_give() -> None:
    on_ring = rc.run_ranks(3, lambda ring: solve_on(ring, PROBLEM))
    for mine, theirs in zip(on_ring, solve(PROBLEM), strict=True):
        for x, y in zip(mine, theirs, strict=True):
            assert x.tobytes() == y.tobytes()
    assert all(error < 8 for error in check_attention(PROBLEM, on_ring).values())


def test_a_backend_is_made_with_the_problems_tile() -> None:
    Seen.tiles.clear()
    rc.run_ranks(3, lambda ring: solve_on(ring, PROBLEM, backend=Seen))
    assert set(Seen.tiles) == {(3, 2)}


def test_inputs_cannot_be_written_to() -> None:
    class Writes(GenericBackend):
        def attend(self, q, *args):
            q[...] = 0
            return super().attend(q, *args)

    with pytest.raises(ValueError, match="read-only"):
        rc.run_ranks(3, lambda ring: solve_on(ring, PROBLEM, backend=Writes()))
    assert not np.any(PROBLEM.q == 0)


def test_a_problem_for_other_ranks_is_refused_on_all() -> None:
    def fn(ring: rc.Ring) -> str:
        with pytest.raises(ValueError, match="Make its layouts") as caught:
            solve_on(ring, PROBLEM)
        return str(caught.value)

    texts = rc.run_ranks(2, fn)
    assert texts[0] == texts[1] and "must be for the ranks of the ring, 2. Got 3." in texts[0]
