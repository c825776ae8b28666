"""The report: line by line for people, as a whole for programs."""

from __future__ import annotations

import json
import textwrap
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.text import Text

from ringcore.cli.doctor.finding import Finding, Status
from ringcore.cli.doctor.ranks import RankFacts
from ringcore.cli.printable import printable
from ringcore.cli.version import installed_version

WIDTH = 80
MARGIN = 20
"""Columns before the values."""
CURE_MARGIN = 7
"""Less, so that most commands fit on one line and can be pasted."""
STYLES: dict[Status, str] = {"ok": "", "note": "cyan", "warning": "yellow", "problem": "bold red"}


class Screen:
    """Prints findings as they come, under the headings of their sections."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._width = min(WIDTH, max(40, console.width))
        self._section = ""

    def show(self, finding: Finding) -> None:
        """Print one finding, its cure on lines of its own."""
        if finding.section != self._section:
            if self._section:
                self._console.print()
            self._print(Text(finding.section, style="bold"))
            self._section = finding.section
        mark = "" if finding.status == "ok" else f"{finding.status}: "
        lines = textwrap.wrap(mark + _clean(finding.value), self._width - MARGIN, break_on_hyphens=False) or [
            ""
        ]
        name = _clean(finding.name)
        if len(name) > MARGIN - 3:
            self._print(Text(f"  {name}"))
            name = ""
        for number, line in enumerate(lines):
            text = Text(f"  {name:{MARGIN - 3}} {line}" if number == 0 else " " * MARGIN + line)
            if number == 0 and mark:
                text.stylize(STYLES[finding.status], MARGIN, MARGIN + len(mark))
            self._print(text)
        arrow = "-> "
        for way in (finding.cure or "").splitlines():
            for line in textwrap.wrap(_clean(way), self._width - CURE_MARGIN, break_on_hyphens=False):
                self._print(Text(arrow.rjust(CURE_MARGIN) + line))
                arrow = ""
            arrow = "" if way.endswith(":") else "-> "  # after a colon comes what belongs to it

    def close(self, findings: Sequence[Finding]) -> None:
        """Print how many problems and warnings there were, and where."""
        self._console.print()
        counts = Counter(finding.status for finding in findings)
        for status in ("problem", "warning"):
            if counts[status]:
                where = dict.fromkeys(f"{x.section}, {x.name}" for x in findings if x.status == status)
                plural = "" if counts[status] == 1 else "s"
                text = f"{counts[status]} {status}{plural}: {_clean('; '.join(where))}"
                for line in textwrap.wrap(text, self._width, subsequent_indent="  ", break_on_hyphens=False):
                    self._print(Text(line, style=STYLES[status]))
        if not counts["problem"]:
            self._print(Text("No problem found."))

    def _print(self, line: Text) -> None:
        self._console.print(line, soft_wrap=True)


def as_json(findings: Sequence[Finding], ranks: Sequence[RankFacts]) -> str:
    """The report as one JSON object: version, whether there is no problem, findings, facts of each rank."""
    report: dict[str, Any] = {
        "ringcore": installed_version(),
        "ok": exit_code(findings) == 0,
        "findings": [asdict(finding) for finding in findings],
        "ranks": [asdict(facts) for facts in ranks],
    }
    return json.dumps(report, indent=2, allow_nan=False)


def exit_code(findings: Sequence[Finding]) -> int:
    """1 if there is a problem, else 0."""
    return int(any(finding.status == "problem" for finding in findings))


def _clean(text: str) -> str:
    return printable(" ".join(text.split()))
