"""The table of who sees whom, counted pair by pair."""

from __future__ import annotations

import re

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

import ringcore as rc
from ringcore.describe import visible_pairs
from ringcore.testing.strategies import layouts, masks
from tests.core.steps import table_of
from tests.profiles import examples


@settings(max_examples=examples(150))
@given(data=st.data())
def test_cells_and_work_are_those_of_the_predicate(data: st.DataObject) -> None:
    q_layout, k_layout = data.draw(layouts()), data.draw(layouts())
    batch = data.draw(st.sampled_from([(), (2,)]))
    drawn = data.draw(masks(q_layout.length, k_layout.length, batch, dense=False))
    mask = rc.full() if drawn.mask is None else drawn.mask
    rows = int(np.prod(mask.lead))
    seen = table_of(drawn.visible, np.arange(q_layout.length), np.arange(k_layout.length))
    seen = np.broadcast_to(seen, (*mask.lead, *seen.shape[-2:])).reshape(rows, *seen.shape[-2:])
    pairs, cells = np.zeros((q_layout.ranks, k_layout.ranks), int), []
    for r in range(q_layout.ranks):
        cells.append("")
        for c in range(k_layout.ranks):
            part = seen[:, q_layout.positions(r)][..., k_layout.positions(c)]
            pairs[r, c] = part.sum()
            cells[-1] += "." if not part.any() else "#" if part.all() else "+"
    assert np.array_equal(visible_pairs(mask, q_layout, k_layout), pairs)
    first, *lines = mask.describe(q_layout, k_layout).splitlines()
    assert first == f"{mask!r}: rows are query ranks, columns key ranks (. none, + some, # all)"
    mean = pairs.sum() / q_layout.ranks or 1.0
    assert lines == [
        f"{r:4d} {cells[r]}  work {pairs[r].sum() / mean:.2f}" for r in range(q_layout.ranks)
    ]  # fmt: skip


def test_zigzag_is_balanced_and_contiguous_is_not() -> None:
    def work(layout: rc.Layout) -> list[float]:
        return [float(x) for x in re.findall(r"work (\S+)", rc.causal().describe(layout))]

    assert set(work(rc.Layout.zigzag(length=800, ranks=4))) == {1.0}
    assert work(rc.Layout.contiguous(length=800, ranks=4)) == [0.25, 0.75, 1.25, 1.75]


def test_keys_have_the_layout_of_the_queries_by_default() -> None:
    layout = rc.Layout.striped(length=9, ranks=3)
    mask = rc.window(1, 1)
    assert mask.describe(layout) == mask.describe(layout, layout)


def test_up_to_64_ranks_are_a_table_and_more_a_summary() -> None:
    assert len(rc.full().describe(rc.Layout.contiguous(length=64, ranks=64)).splitlines()) == 65
    assert rc.causal().describe(rc.Layout.contiguous(length=130, ranks=65)) == (
        "causal(): 65 x 65 ranks, more than 64: no table\nwork per rank over the mean: 0.02 to 1.98"
    )


def test_dense_arrays_are_left_out() -> None:
    layout = rc.Layout.contiguous(length=2, ranks=1)
    assert "   0 +  work 1.00" in (rc.causal() & rc.dense(np.zeros((2, 2), bool))).describe(layout)
