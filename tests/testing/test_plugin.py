"""The pytest plug-in, as a user's tests see it."""

from __future__ import annotations

import ast
import gc
import os
import subprocess
import sys
from pathlib import Path

# Before pytester can import them for its own, inner run alone: NumPy cannot be loaded twice in one process.
import array_api_compat.numpy  # noqa: F401
import hypothesis  # noqa: F401
import pytest
import ringcore_numpy
import ringcore_threads

import ringcore.testing
from ringcore.launcher import LAUNCHERS
from ringcore.testing import plugin

FILES = ["plugin.py", "__init__.py"]


@pytest.fixture
def run(pytester, request):
    """Run a file of tests in a pytest of its own, with the plug-in loaded once."""

    def run(source, *args):
        pytester.makepyfile(source)
        installed = request.config.pluginmanager.has_plugin("ringcore")
        plugin = () if installed else ("-p", "ringcore.testing.plugin")
        return pytester.runpytest_inprocess("-p", "no:cacheprovider", *plugin, *args)

    return run


@pytest.mark.parametrize("name", FILES)
def test_loading_the_plugin_imports_no_library(name):
    """Every pytest run of an environment loads it."""
    source = Path(ringcore.testing.__file__).with_name(name).read_text(encoding="utf-8")
    modules = {
        alias.name for node in ast.parse(source).body if isinstance(node, ast.Import) for alias in node.names
    } | {node.module for node in ast.parse(source).body if isinstance(node, ast.ImportFrom)}
    assert modules <= {"__future__", "collections.abc", "functools", "importlib", "os", "typing", "pytest"}


def test_the_plugin_knows_every_launcher():
    """By a list of its own: to import the other would import NumPy."""
    assert {launcher.rank for launcher in LAUNCHERS} == plugin._RANK_VARIABLES


def test_ring_is_one_rank(run):
    result = run("""
        import numpy as np, ringcore as rc

        def test_ring(ring):
            assert isinstance(ring, rc.Ring)
            assert (ring.rank, ring.size, ring.timeout) == (0, 1, 60.0)
            x = np.ones((3, 2))
            assert np.array_equal(rc.attention(x, x, x, ring=ring), x)
    """)
    result.assert_outcomes(passed=1)


def test_a_marked_test_runs_on_every_rank_of_each_size(run):
    result = run(
        """
        import pytest
        from pathlib import Path

        @pytest.mark.ranks(1, 2, 3)
        def test_body(ring, tmp_path_factory):
            Path(f"{ring.rank}-of-{ring.size}").touch()

        def test_all_ran():
            want = {f"{rank}-of-{size}" for size in (1, 2, 3) for rank in range(size)}
            assert {path.name for path in Path().glob("*-of-*")} == want
        """,
        "-v",
    )
    result.assert_outcomes(passed=4)
    result.stdout.fnmatch_lines([f"*test_body?P{size}?*PASSED*" for size in (1, 2, 3)])


def test_a_failure_names_the_rank(run):
    result = run("""
        import pytest

        @pytest.mark.ranks(3)
        def test_body(ring):
            assert ring.rank != 1, "broken"
    """)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*assert ring.rank != 1*", "*AssertionError: broken*", "*on rank 1 of 3*"])


def test_a_skip_and_an_expected_error_work_on_ranks(run):
    result = run("""
        import pytest

        @pytest.mark.ranks(2)
        def test_skip(ring):
            pytest.skip("not today")

        @pytest.mark.ranks(2)
        @pytest.mark.xfail(raises=ZeroDivisionError, strict=True)
        def test_xfail(ring):
            1 / 0

        @pytest.mark.ranks(2)
        def test_raises(ring):
            with pytest.raises(ZeroDivisionError):
                1 / 0
    """)
    result.assert_outcomes(skipped=1, xfailed=1, passed=1)


def test_ranks_talk_to_each_other(run):
    result = run("""
        import numpy as np, pytest

        @pytest.mark.parametrize("factor", [1, 10])
        @pytest.mark.ranks(2, 4)
        class TestSums:
            def test_sum(self, ring, factor):
                total = ring.allreduce(np.array(factor * (ring.rank + 1)))
                assert total == factor * ring.size * (ring.size + 1) / 2
    """)
    result.assert_outcomes(passed=4)


def test_a_property_draws_once_for_all_ranks(run):
    result = run("""
        import numpy as np, pytest
        from hypothesis import given, settings, strategies as st

        calls = []

        @pytest.mark.ranks(3)
        @settings(max_examples=10, database=None)
        @given(n=st.integers(0, 1000))
        def test_same(ring, n):
            calls.append(n)
            assert ring.allreduce(np.array(n)) == 3 * n

        def test_count():
            assert len(calls) == 30

        @pytest.mark.ranks(2)
        @settings(max_examples=200, database=None)
        @given(n=st.integers(0, 1000))
        def test_shrinks(ring, n):
            assert ring.rank == 0 or n < 17
    """)
    result.assert_outcomes(passed=2, failed=1)
    result.stdout.fnmatch_lines(["*n=17,*"])


def test_the_fixture_ranks_runs_a_function(run):
    result = run("""
        def test_ranks(ranks):
            assert ranks(3, lambda ring, x: ring.rank + x, 10) == [10, 11, 12]
            assert ranks(2, lambda ring: ring.timeout) == [60.0, 60.0]
    """)
    result.assert_outcomes(passed=1)


def test_the_timeout_can_be_set(run, pytester):
    pytester.makeini("[pytest]\nring_timeout = 7.5")
    result = run("""
        import pytest

        def test_one(ring):
            assert ring.timeout == 7.5

        def test_ranks(ranks):
            assert ranks(2, lambda ring: ring.timeout) == [7.5, 7.5]

        @pytest.mark.ranks(2)
        def test_marked(ring):
            assert ring.timeout == 7.5
    """)
    result.assert_outcomes(passed=3)


def test_a_rank_that_hangs_is_an_error(run, pytester):
    pytester.makeini("[pytest]\nring_timeout = 0.3")
    result = run("""
        import threading, numpy as np, pytest

        @pytest.mark.ranks(2)
        def test_hangs(ring):
            if ring.rank == 0:
                ring.allreduce(np.array(1))
            else:
                threading.Event().wait(2)
    """)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*PeerTimeout*"])


def test_ring_can_be_overridden(run, pytester):
    pytester.makeconftest("""
        import pytest

        @pytest.fixture(scope="session")
        def ring():
            return "mine"
    """)
    run("def test_ring(ring): assert ring == 'mine'").assert_outcomes(passed=1)


def test_a_fixture_that_looks_into_a_ring_of_many_is_told(run):
    result = run("""
        import pytest

        @pytest.fixture
        def half(ring):
            return ring.size // 2

        @pytest.mark.ranks(2)
        def test_half(ring, half): pass
    """)
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*ring.size is known only where the test runs*"])


@pytest.mark.parametrize("size", [1, 2])
@pytest.mark.parametrize(
    "body",
    [
        "async def test_x(ring): assert False",
        "async def test_x(ring): assert False; yield",
        "@given(st.booleans())\nasync def test_x(ring, b): assert False",
        "@undecided\nasync def test_x(ring): assert False",
    ],
    ids=["coroutine", "asynchronous generator", "property", "decorated"],
)
def test_what_would_not_be_run_does_not_pass(run, body, size):
    gc.collect()  # coroutines that earlier tests left behind warn now, not in the midst of this one
    result = run(f"""
import functools, pytest
from hypothesis import given, strategies as st

def undecided(test):
    @functools.wraps(test)
    def plain(**arguments):
        return test(**arguments)
    return plain

@pytest.mark.ranks({size})
{body}
    """)
    result.assert_outcomes(failed=1)
    if size > 1:
        result.stdout.fnmatch_lines(
            ["*TypeError: test_x: a test marked ranks must be a plain function. Got*"]
        )
    result.stdout.no_fnmatch_line("*RuntimeWarning*")


LAUNCHED = """
import sys, pytest
sys.modules["mpi4py"] = None  # as if it were not installed
sys.exit(pytest.main(sys.argv[1:]))
"""


def launched(tmp_path, source, *args, rank=0, size):
    """A pytest that a launcher seems to have started, without an MPI."""
    (tmp_path / "test_it.py").write_text(source, encoding="utf-8")
    roots = {str(Path(m.__file__).parents[1]) for m in (ringcore, ringcore_numpy, ringcore_threads)}
    variables = {"PMI_RANK": str(rank), "PMI_SIZE": str(size), "PYTHONPATH": os.pathsep.join(roots)}
    plugin = ["-p", "ringcore.testing.plugin", "-p", "no:ringcore", "-p", "no:cacheprovider"]
    return subprocess.run(
        [sys.executable, "-c", LAUNCHED, *plugin, *args],
        cwd=tmp_path,
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


ON_RANKS = """
import pytest
@pytest.mark.ranks(1, 2)
def test_a(ring): assert type(ring.transport).__name__ == "ThreadTransport"
"""


@pytest.mark.parametrize(("rank", "shown"), [(0, 1), (1, 0)])
def test_processes_that_cannot_meet_are_told_once(tmp_path, rank, shown):
    done = launched(tmp_path, ON_RANKS, rank=rank, size=2)
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert done.stderr.count("has started 2 processes, which need mpi4py to meet") == shown


def test_one_process_needs_no_mpi(tmp_path):
    done = launched(tmp_path, ON_RANKS, size=1)
    assert done.returncode == 0, done.stdout
    assert "2 passed" in done.stdout


def test_what_another_rank_prints_is_kept_if_nothing_asks_for_ranks(tmp_path):
    done = launched(tmp_path, "def test_a(): assert False, 'seen'", rank=1, size=2)
    assert done.returncode == 1
    assert done.stdout.count("test session starts") == 1
    assert "AssertionError: seen" in done.stdout
    done = launched(tmp_path, "syntax error", rank=1, size=2)
    assert done.returncode == 2
    assert "SyntaxError" in done.stdout


@pytest.mark.parametrize(
    ("mark", "arguments", "message"),
    [
        ("ranks(2)", "", "must take the fixture ring"),
        ("ranks()", "ring", "must be given numbers of ranks"),
        ("ranks(0)", "ring", "must be given numbers of ranks"),
        ("ranks(2.5)", "ring", "must be given numbers of ranks"),
        ("ranks(True)", "ring", "must be given numbers of ranks"),
    ],
)
def test_wrong_marks_are_errors(run, mark, arguments, message):
    result = run(f"import pytest\n@pytest.mark.{mark}\ndef test_x({arguments}): pass")
    assert result.ret != 0
    assert message in result.stdout.str() + result.stderr.str()


def test_the_mark_is_declared(run):
    result = run("", "--markers")
    result.stdout.fnmatch_lines(["@pytest.mark.ranks(?sizes): run the test once for each size*"])
