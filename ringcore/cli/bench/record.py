"""The same figures for programs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from ringcore.cli.bench.run import Outcome


def content(outcomes: Sequence[Outcome], planned: int, about: Mapping[str, Any]) -> bytes:
    """What the file holds: one JSON object.

    Parameters
    ----------
    outcomes : sequence of Outcome
    planned : int
        How many rows there should have been.
    about : mapping
        Versions and the like; goes in as it is.
    """
    value = {
        **about,
        "passed": len(outcomes) == planned and not any(outcome.fault for outcome in outcomes),
        "rows": [_row(outcome) for outcome in outcomes],
    }
    return (json.dumps(value, indent=2, allow_nan=False) + "\n").encode()


def _row(outcome: Outcome) -> dict[str, Any]:
    row = outcome.row
    return {
        "library": row.library.name,
        "dtype": row.dtype,
        "length": row.length,
        "heads": row.heads,
        "kv_heads": row.kv_heads,
        "dim": row.dim,
        "mask": row.mask.text,
        "layout": row.spread,
        "direction": row.direction,
        "pairs": row.pairs,
        "flops": row.flops,
        "error": outcome.fault or None,
        "figures": None if outcome.figures is None else asdict(outcome.figures),
    }
