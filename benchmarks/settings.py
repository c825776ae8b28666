"""Each contender's best setting for each kind of case, as `sweep.py` found it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from cases import Case
from rivals.rival import Rival

SWEEP = Path(__file__).resolve().parent / "results" / "sweep.json"


def as_setting(found: Any) -> Any:
    """JSON has no tuples."""
    return tuple(found) if isinstance(found, list) else found


class Settings:
    """What is in a sweep's file; without a file, every contender's first, the documented default."""

    def __init__(self, path: Path = SWEEP) -> None:
        rows = json.loads(path.read_text())["rows"] if path.exists() else []
        self.swept = {row["contender"] for row in rows}
        self._best = {
            (row["contender"], row["dim"], row["mask"], row["direction"]): as_setting(row["best"])
            for row in rows
        }

    def best(self, rival: Rival, case: Case) -> Any:
        found = self._best.get((rival.name, case.dim, case.mask, case.direction))
        return found if found in rival.settings else rival.settings[0]
