"""Every example of docs/testing.md and docs/testing-mpi.md runs, and what they show is what comes out."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

# Before pytester can import them for its own, inner run alone: NumPy cannot be loaded twice in one process.
import array_api_compat.numpy  # noqa: F401
import hypothesis  # noqa: F401
import pytest
import ringcore_numpy  # noqa: F401
import ringcore_threads  # noqa: F401

import ringcore.testing
from ringcore.testing import oracle
from tests.mpirun import mpirun

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


# ------------------------------------------------------------------ docs/testing-mpi.md

MPI_PAGE = PAGE.with_name("testing-mpi.md").read_text(encoding="utf-8")
MPI_BLOCKS: dict[str, list[str]] = {}
for indent, kind, code in re.findall(
    r"^( *)```python (\w+)\n(.*?)^ *```", MPI_PAGE, re.MULTILINE | re.DOTALL
):
    MPI_BLOCKS.setdefault(kind, []).append(textwrap.dedent(code) if indent else code)


def under_mpirun(folder, name, code, *args, ranks=3):
    """What pytest prints under mpirun for a file of tests."""
    (folder / name).write_text(code, encoding="utf-8")
    plugin = ["-p", "ringcore.testing.plugin", "-p", "no:ringcore", "-p", "no:cacheprovider"]
    plugin.append("--hypothesis-profile=default")  # in CI hypothesis has another one, without a seed
    ended = mpirun(ranks, "-m", "pytest", *plugin, *args, name, cwd=folder, env={"COLUMNS": "80"})
    assert ended.code is not None, ended.text
    return ended.code, re.sub(r"\x1b\[[0-9;]*m", "", ended.text)


def shown(text):
    """The lines of the indented block of the page that holds a text, without those that say "..."."""
    (block,) = [
        block for block in re.findall(r"(?:^(?: {4}.*)?\n)+", MPI_PAGE, re.MULTILINE) if text in block
    ]
    lines = [line.strip() for line in block.splitlines()]
    return [line for line in lines if line and line != "..." and not line.startswith("mpirun")]


def test_the_mpi_page_has_examples():
    assert {kind: len(blocks) for kind, blocks in MPI_BLOCKS.items()} == {"mpi": 4, "mistake": 1, "hang": 1}


@pytest.mark.parametrize("index", range(4))
def test_its_test_files_pass_under_mpirun(tmp_path, index):
    code, text = under_mpirun(tmp_path, "test_cumulative.py", MPI_BLOCKS["mpi"][index])
    assert code == 0, text
    if index == 0:
        for line in shown("mpirun -n 3 python -m pytest test_cumulative.py"):
            # Times, seeds and launchers differ.
            constant = re.sub(r"started by [^;]*|=\d+|in [\d.]+s|=", "*", line)
            assert all(part in text for part in constant.split("*")), line


def test_the_mistake_is_found_as_shown(tmp_path):
    (wrong,) = MPI_BLOCKS["mistake"]
    right = MPI_BLOCKS["mpi"][0]
    function = re.compile(r"^def cumulative.*?(?=\n\n\n)", re.MULTILINE | re.DOTALL)
    code, text = under_mpirun(tmp_path, "test_cumulative.py", function.sub(wrong.rstrip(), right))
    assert code == 1, text
    for line in shown("[on rank 1, 2 of 3]"):
        assert line in text, line
    assert "test_ten_each" not in text


def test_a_hang_ends_as_shown(tmp_path):
    code, text = under_mpirun(tmp_path, "test_hang.py", MPI_BLOCKS["hang"][0], "-o", "ring_timeout=3")
    assert code != 0
    for line in (
        "[rank 1] test_hang.py::test_waits_for_ever (call)",
        "The ranks have lost each other, so that",
    ):
        assert line in MPI_PAGE
        assert line in text
    options = ["-o", "ring_timeout=30", "--timeout=3", "--timeout-method=thread"]
    code, text = under_mpirun(tmp_path, "test_hang.py", MPI_BLOCKS["hang"][0], *options)
    assert code != 0
    assert re.search(r'test_hang.py", line \d+, in test_waits_for_ever\s+MPI.COMM_WORLD.Barrier', text), text
