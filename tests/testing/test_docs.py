"""Every example of docs/testing.md runs."""

from __future__ import annotations

import re
from pathlib import Path

# Before pytester can import them for its own, inner run alone: NumPy cannot be loaded twice in one process.
import array_api_compat.numpy  # noqa: F401
import hypothesis  # noqa: F401
import pytest
import ringcore_numpy  # noqa: F401
import ringcore_threads  # noqa: F401

import ringcore.testing
from ringcore.testing import oracle

PAGE = Path(__file__).parents[2] / "docs" / "testing.md"
TEXT = PAGE.read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```python( pytest)?\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)
TESTS = [code for kind, code in BLOCKS if kind]


def test_the_page_has_examples():
    assert len(TESTS) >= 3
    assert len(BLOCKS) - len(TESTS) >= 6


def test_the_examples_run_one_after_the_other():
    namespace: dict[str, object] = {}
    for kind, code in BLOCKS:
        if not kind:
            exec(compile(code, str(PAGE), "exec"), namespace)


@pytest.mark.parametrize("code", TESTS, ids=range(len(TESTS)))
def test_the_test_files_pass(pytester, request, code):
    pytester.makepyfile(code)
    plugin = () if request.config.pluginmanager.has_plugin("ringcore") else ("-p", "ringcore.testing.plugin")
    result = pytester.runpytest_inprocess("-p", "no:cacheprovider", *plugin)
    assert result.ret == 0
    assert result.parseoutcomes().keys() - {"warnings", "warning"} == {"passed"}


def test_the_table_in_the_page_is_true():
    table = (oracle.causal() & ~oracle.keys(1, 2)).table(3, 3).astype(int)
    for line in str(table).splitlines():
        assert f"# {line.strip()}" in TEXT or f"#  {line.strip()}" in TEXT


def test_every_public_name_is_there():
    for name in ringcore.testing.__all__:
        assert hasattr(ringcore.testing, name)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        ringcore.testing.nothing  # noqa: B018
