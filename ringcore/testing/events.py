"""The hard cases of ring attention, named, so that a property test can count that they did occur."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import numpy as np

from ringcore.testing.drawn_mask import names, per_row

if TYPE_CHECKING:
    from ringcore.testing.problem import Problem

HARD_CASES = (
    "P = 1",
    "P > 1",
    "P is odd and > 1",
    "P > S",
    "empty shard",
    "S = 0",
    "S = 1",
    "S is not a multiple of P",
    "query that sees no key",
    "key that no query sees",
    "rank that sees no key",
    "GQA",
    "MQA",
    "H / G >= 4",
    "D != E",
    "D >= 8",
    "two layouts",
    "uneven layout",
    "cross-attention",
    "2-d arrays",
    "no batch dims",
    "two batch dims",
    "seq_axis=-3",
    "no mask",
    "mask of three or more parts",
    "complement",
    "per-row mask",
    "dense mask",
    "dense mask per head",
    "lse has no cotangent",
    "large scores",
    "scale is 0",
    "scale beyond 1",
    "equal values",
)
"""Every name that `of` can give, the requests for side and way ("side=q", "way=direct", ...) excepted."""


def of(problem: Problem) -> list[str]:
    """Names of the hard cases that a problem is."""
    q_layout, k_layout, P = problem.q_layout, problem.k_layout, problem.ranks
    lengths = (problem.S_q, problem.S_k)
    counts = [layout.count(rank) for layout in (q_layout, k_layout) for rank in range(P)]
    visible, mask = problem.visible, problem.mask
    used = names(mask.tree)
    H, G = problem.heads or (1, 1)
    blind = ~np.any(visible, axis=-1)  # (*B, H, S_q)
    cases = {
        "P = 1": P == 1,
        "P > 1": P > 1,
        "P is odd and > 1": P > 1 and P % 2 == 1,
        "P > S": min(lengths) < P,
        "empty shard": 0 in counts,
        "S = 0": 0 in lengths,
        "S = 1": 1 in lengths,
        "S is not a multiple of P": any(S % P for S in lengths),
        "query that sees no key": problem.S_k > 0 and bool(np.any(blind)),
        "key that no query sees": problem.S_q > 0 and not bool(np.all(np.any(visible, axis=-2))),
        "rank that sees no key": problem.S_k > 0
        and any(
            q_layout.count(rank) > 0 and bool(np.all(blind[..., q_layout.positions(rank)]))
            for rank in range(P)
        ),
        "GQA": 1 < G < H,
        "MQA": 1 == G < H,
        "H / G >= 4": H >= 4 * G,
        "D != E": problem.D != problem.E,
        "D >= 8": problem.D >= 8,
        "two layouts": q_layout != k_layout,
        "uneven layout": "uneven" in (q_layout.kind, k_layout.kind),
        "cross-attention": problem.S_q != problem.S_k,
        "2-d arrays": problem.heads is None,
        "no batch dims": problem.heads is not None and not problem.batch,
        "two batch dims": len(problem.batch) == 2,
        "seq_axis=-3": problem.seq_axis == -3,
        "no mask": mask.tree is None and mask.dense is None,
        "mask of three or more parts": len(used - {"&", "|", "~"}) >= 3,
        "complement": "~" in used,
        "per-row mask": per_row(mask.tree),
        "dense mask": mask.dense is not None,
        "dense mask per head": mask.dense is not None
        and len(mask.dense.lead) > 0
        and mask.dense.lead[-1] > 1,
        "lse has no cotangent": not problem.with_dlse,
        "large scores": problem.spread > 10,
        "scale is 0": problem.scale == 0,
        "scale beyond 1": problem.scale is not None and abs(problem.scale) > 1,
        "equal values": problem.fill is not None,
    }
    return [name for name, is_so in cases.items() if is_so] + [f"side={problem.side}", f"way={problem.way}"]


def assert_occurred(
    counted: Mapping[str, int] | Counter[str], cases: Iterable[str], *, least: int = 1
) -> None:
    """Each of these cases occurred at least ``least`` times; a property that never met them shows nothing.

    Examples
    --------
    >>> assert_occurred(Counter({"P > S": 3}), ["P > S", "GQA"])
    Traceback (most recent call last):
        ...
    AssertionError: hard cases must occur at least 1 times. Too few: GQA 0. Draw more examples.
    """
    few = [f"{case} {counted.get(case, 0)}" for case in cases if counted.get(case, 0) < least]
    if few:
        raise AssertionError(
            f"hard cases must occur at least {least} times. Too few: {', '.join(few)}. Draw more examples."
        )
