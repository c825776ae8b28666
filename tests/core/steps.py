"""Random steps with the answer next to them: which query-key pairs are visible, from predicates alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import strategies as st

from ringcore.layout import Layout
from ringcore.mask import Mask
from ringcore.meter import Meter
from ringcore.patterns import full
from ringcore.step import Step, local_step, lower
from ringcore.testing.drawn_mask import DrawnMask
from ringcore.testing.strategies import layouts, masks
from ringcore.testing.visibility import Visibility


@dataclass(frozen=True)
class Known:
    """A step, and ``table``: bool (\\*lead, L_q, L_k), which pairs of local rows and columns are visible."""

    step: Step
    table: np.ndarray
    text: str

    def __repr__(self) -> str:
        return self.text


def table_of(visible: Visibility, q_pos: np.ndarray, k_pos: np.ndarray) -> np.ndarray:
    """The predicate at these global positions."""
    seen = np.asarray(visible.see(q_pos[:, None], k_pos[None, :]))
    return np.broadcast_to(seen, np.broadcast_shapes(seen.shape, (len(q_pos), len(k_pos))))


def known_step(
    drawn: DrawnMask,
    q_layout: Layout,
    k_layout: Layout,
    q_rank: int = 0,
    k_rank: int = 0,
    *,
    scale: float = 1.0,
    as_array: Any = np.asarray,
) -> Known:
    """The step of one rank's queries against another's keys; ``as_array`` makes the dense mask's array."""
    q_pos, k_pos, S_k = q_layout.positions(q_rank), k_layout.positions(k_rank), k_layout.length
    mask: Mask = full() if drawn.mask is None else drawn.mask
    table = table_of(drawn.visible, q_pos, k_pos)
    dense: tuple[Any, ...] = ()
    if drawn.dense is not None:
        rows = drawn.dense.table(q_layout.length, S_k)[..., q_pos, :]
        dense = (as_array(rows),)
        table = table & rows[..., k_pos]
    step = local_step(lower(mask, q_pos, S_k), q_pos, k_layout, k_rank, scale, dense, Meter())
    return Known(step, table, f"{drawn!r} of {q_layout!r} rank {q_rank}, {k_layout!r} rank {k_rank}")


@st.composite
def known_steps(
    draw: st.DrawFn,
    batch: tuple[int, ...] = (),
    heads: int | None = None,
    *,
    max_length: int = 24,
    dense: bool = True,
    scale: float = 1.0,
    as_array: Any = np.asarray,
) -> Known:
    """Any rank's queries against any rank's keys: two layouts, every kind of mask."""
    ranks = draw(st.integers(1, 4))
    q_layout = draw(layouts(length=st.integers(0, max_length), ranks=ranks))
    k_layout = draw(layouts(length=st.integers(0, max_length), ranks=ranks))
    drawn = draw(masks(q_layout.length, k_layout.length, batch, heads=heads, dense=dense))
    q_rank, k_rank = draw(st.integers(0, ranks - 1)), draw(st.integers(0, ranks - 1))
    return known_step(drawn, q_layout, k_layout, q_rank, k_rank, scale=scale, as_array=as_array)
