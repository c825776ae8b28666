"""A pytest plug-in that turns a skip into a failure unless its reason is on a list."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path

import pytest

SKIP_REASONS = Path(__file__).with_name("skip_reasons.txt")


class SkipList:
    """Lets a test, or a whole file of tests, be skipped only for a reason that begins with a listed line."""

    def __init__(self, path: Path = SKIP_REASONS) -> None:
        self.path = path
        lines = (line.strip() for line in path.read_text(encoding="utf-8").splitlines())
        self.allowed = tuple(line for line in lines if line and not line.startswith("#"))

    def judge(self, report: pytest.TestReport | pytest.CollectReport) -> None:
        """Make a failure of a report that says 'skipped' for an unlisted reason."""
        if report.outcome != "skipped" or hasattr(report, "wasxfail"):
            return
        longrepr = report.longrepr
        text = str(longrepr[2] if isinstance(longrepr, tuple) else longrepr)
        reason = text.removeprefix("Skipped: ")
        if reason.startswith(self.allowed):
            return
        report.outcome = "failed"
        report.longrepr = (
            f"A skip's reason must be on the list {self.path}. Got {reason!r}. "
            "Make the test run, or add a line there if a sound machine may lack what it needs."
        )

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_makereport(self) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        self.judge(report)
        return report

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_make_collect_report(self) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
        report = yield
        self.judge(report)
        return report
