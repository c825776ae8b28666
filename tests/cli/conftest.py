"""What the tests of the command line share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest


@pytest.fixture
def fasta(tmp_path: Path) -> Callable[[Mapping[str, str]], Path]:
    """Write records to a FASTA file, 60 letters a line, and return its path."""

    def write(records: Mapping[str, str], name: str = "genome.fa") -> Path:
        path = tmp_path / name
        lines = []
        for header, letters in records.items():
            lines += [f">{header}", *(letters[i : i + 60] for i in range(0, len(letters), 60))]
        path.write_text("\n".join(lines) + "\n")
        return path

    return write
