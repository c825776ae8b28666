"""Tests of the tests' own equipment."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import array_api_compat
import ml_dtypes
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.libraries import LIBRARIES
from tests.profiles import DEFAULT, examples, for_library
from tests.skips import SKIP_REASONS, SkipList

# ------------------------------------------------------------------ xp


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64", "int64", "bool"])
def test_arrays_go_there_and_back(xp, dtype):
    if xp.name == "array-api-strict" and dtype in {"float16", "bfloat16"}:
        with pytest.raises(TypeError):
            xp.asarray(np.zeros(3, np.float16))
        return
    x = (np.arange(24).reshape(2, 3, 4) / 7).astype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)
    for values in (x, x[:, ::-1, 1:], x[0, 0, 0]):
        back = xp.numpy(xp.asarray(values))
        assert back.dtype == x.dtype
        assert back.shape == values.shape
        assert back.tobytes() == values.tobytes()


def test_the_namespace_is_that_of_the_arrays(xp):
    assert array_api_compat.array_namespace(xp.asarray(np.zeros(2))) is xp.xp


def test_arrays_are_copies(xp):
    x = np.zeros(3)
    y = xp.asarray(x)
    x[0] = 1
    assert xp.numpy(y)[0] == 0


def test_readonly_arrays_cannot_be_written_to():
    with pytest.raises(ValueError, match="read-only"):
        LIBRARIES["numpy-readonly"]().asarray([1.0, 2.0])[0] = 3


def test_strict_arrays_have_none_of_the_optional_parts():
    strict = LIBRARIES["array-api-strict"]()
    x = strict.asarray([1.0, 2.0])
    with pytest.raises(RuntimeError):
        x[x > 1.5]
    with pytest.raises(RuntimeError):
        strict.xp.nonzero(x)
    with pytest.raises(AttributeError):
        strict.xp.linalg  # noqa: B018 - that it is not there is the point


# ------------------------------------------------------------------ profiles

PER_DEFAULT = {"numpy": 300, "numpy-readonly": 50, "array-api-strict": 50, "torch": 50, "jax": 8}


@pytest.fixture
def drawn(xp):
    """A list for the examples of one property; fails if in the end it has not got its library's number."""
    seen: list[int] = []
    yield seen
    assert abs(len(seen) - PER_DEFAULT[xp.name] * settings().max_examples / DEFAULT) <= 1


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers())
def test_a_property_has_the_number_of_examples_of_its_library(xp, drawn, x):
    drawn.append(x)


def test_a_property_with_a_number_of_its_own_has_its_share(xp):
    seen: list[int] = []

    @settings(max_examples=examples(60))
    @given(st.integers())
    def a_property(x: int) -> None:
        seen.append(x)

    for share in (PER_DEFAULT[xp.name] / 300, 1):  # a second run, outside, finds the number restored
        seen.clear()
        with for_library(a_property, xp.name) if share != 1 else nullcontext():
            a_property()
        assert abs(len(seen) - share * 60 * settings().max_examples / DEFAULT) <= 1


def test_no_property_has_a_deadline():
    assert settings().deadline is None


# ------------------------------------------------------------------ skips

SKIPS = """
    import pytest

    @pytest.mark.skip(reason="no GPU here")
    def test_listed(): pass

    @pytest.mark.skipif(True, reason="it is Monday")
    def test_unlisted(): pass

    def test_unlisted_inside(): pytest.skip("too lazy")

    @pytest.fixture
    def lazy(): pytest.skip("lazy fixture")

    def test_unlisted_fixture(lazy): pass

    @pytest.mark.xfail(strict=True)
    def test_expected_failure(): assert False
"""


def run_with_list(pytester: pytest.Pytester, reasons: str) -> pytest.RunResult:
    path = Path(pytester.path, "reasons.txt")
    path.write_text(reasons, encoding="utf-8")
    return pytester.runpytest_inprocess("-p", "no:ringcore", plugins=[SkipList(path)])


def test_an_unlisted_skip_fails(pytester):
    pytester.makepyfile(SKIPS)
    result = run_with_list(pytester, "# a comment\n\nno GPU\n")
    # A fixture that skips is part of the set-up, and what fails there is an error.
    result.assert_outcomes(skipped=1, failed=1, errors=2, xfailed=1)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    for reason in ("it is Monday", "too lazy", "lazy fixture"):
        result.stdout.fnmatch_lines([f"*must be on the list*reasons.txt*Got '{reason}'*"])


def test_listed_skips_do_not_fail(pytester):
    pytester.makepyfile(SKIPS)
    result = run_with_list(pytester, "no GPU\nit is\ntoo lazy\nlazy\n")
    result.assert_outcomes(skipped=4, xfailed=1)
    assert result.ret == pytest.ExitCode.OK


def test_a_comment_or_an_empty_line_allows_nothing(pytester):
    pytester.makepyfile("import pytest\ndef test_x(): pytest.skip('# reason')")
    assert run_with_list(pytester, "# reason\n\n  \n").ret == pytest.ExitCode.TESTS_FAILED


def test_an_unlisted_skip_of_a_whole_file_fails(pytester):
    pytester.makepyfile("import pytest\npytest.importorskip('there_is_no_such_module')")
    result = run_with_list(pytester, "no GPU\n")
    result.assert_outcomes(errors=1)
    assert result.ret == pytest.ExitCode.INTERRUPTED
    result.stdout.fnmatch_lines(["*could not import 'there_is_no_such_module'*"])


def test_the_committed_list_is_in_force(request):
    plugin = request.config.pluginmanager.get_plugin("ringcore-skip-list")
    assert plugin is not None
    assert plugin.path == SKIP_REASONS
    assert all(len(line) >= 6 for line in plugin.allowed), "a short prefix would allow almost anything"
