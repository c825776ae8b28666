"""MPI libraries and launchers, made up and real: what they say, and what becomes of those that fail."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ringcore.cli.doctor import child, mpi, mpi_facts, mpirun
from ringcore.cli.doctor.mpi_facts import MpiFacts
from ringcore.cli.doctor.vendors import family_of, strangers, vendor
from ringcore.launcher import LAUNCHERS, Launch
from tests.cli.fake_mpi import MPICH, OMPI, OPEN_MPI, PMI, ROOTS, SRUN, clean_environment, install, run_all

FACTS = MpiFacts("MPICH Version: 5.0.2", None, "5.0", "multiple", "multiple", 32767, None, None, 1)
DIES = (
    "sys.stderr.write('Fatal error in MPI_Init:\\n  unsupported PMI version PMIx\\n'); "
    "sys.stderr.flush(); os._exit(16)"
)


@pytest.fixture(autouse=True)
def _clean(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in set(os.environ) - set(clean_environment()):
        monkeypatch.delenv(name)


def problems(text: str) -> list[dict[str, Any]]:
    return [x for x in json.loads(text)["findings"] if x["status"] == "problem"]


# ------------------------------------------------------------------ processes that MPI knows nothing of

MISMATCHES: Mapping[str, tuple[Mapping[str, str], dict[str, Any], str]] = {
    "Open MPI under MPICH's mpirun": (PMI, {"library": OPEN_MPI}, "Each of the 2 is alone."),
    "MPICH under Open MPI's mpirun": (
        OMPI,
        {"library": MPICH, "at_start": DIES},
        "unsupported PMI version PMIx",
    ),
    "MPICH without PMI under srun": (SRUN, {"library": MPICH}, "Each of the 2 is alone."),
    "MPICH that its own mpirun does not reach": (PMI, {"library": MPICH}, "Each of the 2 is alone."),
}


@pytest.mark.parametrize("name", MISMATCHES)
def test_processes_that_do_not_meet(name: str, tmp_path: Path) -> None:
    launcher, library, what = MISMATCHES[name]
    first, second = run_all(install(tmp_path, **library), launcher, 2, "--json")
    assert second == (0, "", "")
    assert first[0] == 1 and first[2] == ""
    (problem,) = problems(first[1])
    assert problem["section"] == "MPI" and problem["name"] == "mismatch"
    assert what in problem["value"] and "has started 2" in problem["value"]
    assert ("Open MPI v5.0.11" if library["library"] == OPEN_MPI else "MPICH Version: 5.0.2") in problem[
        "value"
    ]
    assert mpi.REBUILD in problem["cure"] and "start with the mpirun of" in problem["cure"]


def test_people_can_read_it(tmp_path: Path) -> None:
    (code, shown, _), *others = run_all(install(tmp_path, OPEN_MPI), PMI, 3)
    assert code == 1 and others == [(0, "", "")] * 2
    assert max(map(len, shown.splitlines())) <= 80
    text = " ".join(shown.split())
    assert "mismatch problem: all processes of a run must meet in one MPI." in text
    assert "-> start with the mpirun of Open MPI" in text
    assert "cores per rank note: unknown" in text
    assert text.endswith("1 problem: MPI, mismatch")


def test_a_library_that_knows_the_other_launcher_is_no_problem(tmp_path: Path) -> None:
    first, second = run_all(install(tmp_path, MPICH, size=2), OMPI, 2, "--json")
    assert (first[0], second[0]) == (0, 0)
    (found,) = (x for x in json.loads(first[1])["findings"] if x["name"] == "mismatch")
    assert found["status"] == "note"


def test_no_library(tmp_path: Path) -> None:
    folder = install(
        tmp_path, MPICH, at_import="raise RuntimeError('cannot load MPI library\\nlibmpi.so: no')"
    )
    for ranks in (1, 2):
        (code, out, _), *others = run_all(folder, PMI, ranks, "--json")
        (problem,) = problems(out)
        assert code == 1 and others == [(0, "", "")] * (ranks - 1)
        assert problem["value"] == "mpi4py loads none. RuntimeError: cannot load MPI library"
        assert "pip install 'ringcore[mpich]'" in problem["cure"] and mpi.REBUILD in problem["cure"]


def test_no_mpi4py(monkeypatch: pytest.MonkeyPatch) -> None:
    assert mpi.missing(None).status == "note"
    assert mpi.missing(Launch("srun", 0, 1)).status == "note"
    found = mpi.missing(Launch("srun", 0, 4))
    assert found.status == "problem" and "the 4 processes that srun has started" in found.value


# ------------------------------------------------------------------ a child that asks


def ask(monkeypatch: pytest.MonkeyPatch, folder: Path, seconds: int = 20, **stub: Any) -> MpiFacts:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(install(folder, **stub)), *ROOTS]))
    return child.ask(seconds)


def test_facts_of_a_library(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    noise = "print('noise', flush=True); import atexit; atexit.register(print, 'more')"
    facts = ask(monkeypatch, tmp_path, library=OPEN_MPI, level=1, at_start=noise)
    assert facts.library == "Open MPI v5.0.11"
    assert (facts.standard, facts.asked, facts.provided) == ("4.1", "multiple", "funneled")
    assert (facts.tag_ub, facts.size, facts.memory_kinds, facts.cuda_query) == (32767, 1, None, None)


@pytest.mark.parametrize(("said", "expected"), [(None, "self"), ("self,tcp", "self,tcp")])
def test_open_mpi_is_kept_from_leaving_files_unless_the_user_has_chosen(
    said: str | None, expected: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    if said is not None:
        monkeypatch.setenv("OMPI_MCA_btl", said)
    code = f"assert os.environ['OMPI_MCA_btl'] == {expected!r}"
    assert ask(monkeypatch, tmp_path, library=OPEN_MPI, at_start=code).size == 1


FAILURES: Mapping[str, tuple[str, str]] = {
    "crash": ("os.kill(os.getpid(), signal.SIGSEGV)", "ends its process with SIGSEGV"),
    "abort": (DIES, 'code 16: "Fatal error in MPI_Init:" ... "unsupported PMI version PMIx"'),
    "exception": ("raise OSError('no network')", 'code 1: "Traceback'),
    "silence": ("sys.exit(0)", "ends its process with code 0"),
    "hang": ("time.sleep(60)", "does not start within 1 s"),
}


@pytest.mark.parametrize("name", FAILURES)
def test_an_mpi_that_does_not_start(name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    code, why = FAILURES[name]
    begin = time.monotonic()
    with pytest.raises(child.Unanswered) as caught:
        ask(monkeypatch, tmp_path, 1 if name == "hang" else 20, library=MPICH, at_start=code)
    assert why in str(caught.value)
    assert time.monotonic() - begin < 40


def test_mpi4py_need_not_warn_of_what_is_told_anyway(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    code = (
        "import warnings; warnings.warn('suspicious MPI execution environment', RuntimeWarning); os._exit(3)"
    )
    with pytest.raises(child.Unanswered) as caught:
        ask(monkeypatch, tmp_path, library=MPICH, at_start=code)
    assert str(caught.value) == "ends its process with code 3"


def test_a_child_that_hangs_is_gone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    told = tmp_path / "pid"
    code = f"open({str(told)!r}, 'w').write(str(os.getpid())); time.sleep(60)"
    with pytest.raises(child.Unanswered):
        ask(monkeypatch, tmp_path, 4, library=MPICH, at_start=code)
    with pytest.raises(ProcessLookupError):
        os.kill(int(told.read_text()), 0)


# ------------------------------------------------------------------ what the facts mean


@pytest.mark.parametrize(
    ("level", "status"),
    [("single", "problem"), ("funneled", "note"), ("serialized", "ok"), ("multiple", "ok")],
)
def test_thread_levels(level: str, status: str) -> None:
    facts = MpiFacts(**{**vars(FACTS), "provided": level})
    (found,) = (x for x in mpi.started(facts) if x.name == "thread level")
    assert found.status == status and found.value.startswith(f"{level}, asked for multiple")
    assert bool(found.cure) == (status == "problem")


CUDA: list[tuple[str | None, bool | None, str | None, str, str]] = [
    ("1", False, "mpi,system", "yes", "RINGCORE_CUDA_MPI=1"),  # the user's word first
    ("0", True, "mpi,system,cuda", "no", "RINGCORE_CUDA_MPI=0"),
    (None, True, "mpi,system", "yes", "MPIX_Query_cuda_support"),  # then the library's
    (None, False, "mpi,system,cuda", "no", "MPIX_Query_cuda_support"),
    (None, None, "mpi,system,cuda:device", "yes", "mpi_memory_alloc_kinds"),  # then the communicator's
    (None, None, "mpi,system", "no", "mpi_memory_alloc_kinds"),
    (None, None, None, "no", "does not say"),
]


@pytest.mark.parametrize(("said", "query", "kinds", "answer", "source"), CUDA)
def test_cuda_awareness(
    said: str | None, query: bool | None, kinds: str | None, answer: str, source: str
) -> None:
    facts = MpiFacts(**{**vars(FACTS), "cuda_query": query, "memory_kinds": kinds})
    (found,) = mpi.cuda(facts, {} if said is None else {"RINGCORE_CUDA_MPI": said})
    assert found.value.startswith(answer) and source in found.value


def test_a_wrong_word_on_cuda_is_told_and_ignored() -> None:
    wrong, found = mpi.cuda(FACTS, {"RINGCORE_CUDA_MPI": "yes"})
    assert wrong.status == "warning" and "must be 0 or 1. Got 'yes'" in wrong.value
    assert found.value.startswith("no")


@pytest.mark.parametrize(
    ("text", "name", "family"),
    [
        (OPEN_MPI, "Open MPI", "Open MPI"),
        (MPICH, "MPICH", "MPICH"),
        (
            "mpirun (Open MPI) 4.1.4\n\nReport bugs to http://www.open-mpi.org/community/help/\n",
            "Open MPI",
            "Open MPI",
        ),
        ("HYDRA build details:\n    Version:                                 4.0.2\n", "MPICH", "MPICH"),
        ("Intel(R) MPI Library 2021.18 for Linux* OS\n", "Intel MPI", "MPICH"),
        ("MPI VERSION    : CRAY MPICH version 8.1.29.26 (ANL base 3.4a2)\n", "Cray MPICH", "MPICH"),
        ("MVAPICH2 Version      :\t2.3.7\n", "MVAPICH", "MPICH"),
        ("IBM Spectrum MPI v10.4.0, package: IBM Spectrum MPI\n", "IBM Spectrum MPI", "Open MPI"),
        ("slurm 23.02.7", "Slurm", "any"),
        ("something else 1.0", "unknown", "unknown"),
    ],
)
def test_vendors(text: str, name: str, family: str) -> None:
    assert vendor(text) == (name, family)


def test_every_launcher_has_a_family() -> None:
    families = {x.name: family_of(Launch(x.name, 0, 2)) for x in LAUNCHERS}
    assert families == {
        "Open MPI's mpirun": "Open MPI",
        "the mpirun of MPICH or Intel MPI": "MPICH",
        "MVAPICH's mpirun": "MPICH",
        "jsrun": "any",
        "flux run": "any",
        "srun": "any",
    }


def test_who_is_a_stranger_to_whom() -> None:
    assert strangers("Open MPI", "MPICH") and strangers("MPICH", "Open MPI")
    for other in ("MPICH", "any", "unknown"):
        assert not strangers("MPICH", other) and not strangers(other, "MPICH")


# ------------------------------------------------------------------ which mpirun


def script(folder: Path, name: str, body: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return path


def test_the_mpirun_in_path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    ours = script(tmp_path / "ours" / "bin", "mpirun", "echo 'mpirun (Open MPI) 5.0.11'")
    script(tmp_path / "theirs", "mpirun", "echo HYDRA build details:; echo '  Version:  5.0.2'")
    libmpi = str(tmp_path / "ours" / "lib" / "libmpi.so.40")
    monkeypatch.setenv("PATH", str(tmp_path / "theirs"))
    (found,) = mpirun.in_path(OPEN_MPI, libmpi)
    assert found.status == "warning" and "MPICH 5.0.2" in found.value and found.cure == f"start with {ours}"
    monkeypatch.setenv("PATH", str(ours.parent))
    (found,) = mpirun.in_path(OPEN_MPI, libmpi)
    assert (found.status, found.value) == ("ok", f"{ours}: Open MPI 5.0.11")
    monkeypatch.setenv("PATH", str(tmp_path))
    (found,) = mpirun.in_path(OPEN_MPI, libmpi)
    assert (found.status, found.value, found.cure) == ("note", "none", f"start with {ours}")
    assert list(mpirun.in_path(None, None)) == []


@pytest.mark.parametrize("body", ["exec sleep 60", "sleep 60 & wait", "exit 3", ""])
def test_an_mpirun_that_does_not_answer(body: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = script(tmp_path, "mpirun", body)
    begin = time.monotonic()
    assert mpirun.version(str(path), seconds=0.5) == ""
    assert time.monotonic() - begin < 10


def test_the_mpirun_of_a_system_with_several(tmp_path: Path) -> None:
    libmpi = str(tmp_path / "lib" / "x86_64-linux-gnu" / "libmpi.so.40")
    script(tmp_path / "bin", "mpirun", "")  # whose, nobody knows
    ours = script(tmp_path / "bin", "mpirun.openmpi", "")
    assert mpirun.beside(libmpi, "Open MPI") == str(ours)
    assert mpirun.beside(None, "Open MPI") is None
    deep = str(tmp_path / "opt" / "mpi" / "8.1" / "ofi" / "lib" / "libmpi_cray.so.12")
    assert mpirun.beside(deep, "MPICH") is None  # not the system's, far above


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["/x/libmpifort.so.12", "/x/libmpi.so.12", "/x/MPI.mpich.cpython-311.so"], "/x/libmpi.so.12"),
        (["/usr/lib/libmpich.so.12.2.0", "/usr/lib/libc.so.6"], "/usr/lib/libmpich.so.12.2.0"),
        (["/opt/cray/lib/libmpi_cray.so.12", "/a b/libompi.so"], "/opt/cray/lib/libmpi_cray.so.12"),
        (["/dev/shm/mpich_shm_6d2a_0"], None),
    ],
)
def test_the_file_of_the_library(names: list[str], expected: str | None, tmp_path: Path) -> None:
    maps = tmp_path / "maps"
    lines = [f"7f00-7f01 r-xp 00000000 08:01 17   {name}" for name in names]
    maps.write_text("\n".join(["7ffc-7ffd rw-p 00000000 00:00 0", *lines]) + "\n")
    assert mpi_facts.libmpi(str(maps)) == expected
    assert mpi_facts.libmpi(str(tmp_path / "nothing")) is None


# ------------------------------------------------------------------ the MPI that is installed


@pytest.fixture
def installed_mpi() -> SimpleNamespace:
    """What mpi4py itself says, asked without ringcore."""
    if importlib.util.find_spec("mpi4py") is None:
        pytest.skip("mpi4py is not installed")
    code = (
        "from mpi4py import MPI\n"
        "print(MPI.get_vendor()[0], MPI.Query_thread(), *MPI.Get_version(), sep='\\n')"
    )
    environment = clean_environment() | child.ALONE
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    if "cannot load MPI library" in done.stderr:
        pytest.skip("mpi4py is not installed together with an MPI library")
    name, level, *standard = done.stdout.splitlines()[-4:]
    return SimpleNamespace(name=name, level=int(level), standard=".".join(standard))


def test_the_installed_mpi_alone(installed_mpi: SimpleNamespace) -> None:
    facts = child.ask()
    assert vendor(facts.library)[0] == installed_mpi.name
    assert facts.standard == installed_mpi.standard and facts.size == 1
    assert mpi_facts.LEVELS[installed_mpi.level] == facts.provided
    assert facts.tag_ub is None or facts.tag_ub >= 32767  # the least that MPI allows
    if sys.platform == "linux":
        assert facts.path is not None and Path(facts.path).exists()


def test_the_installed_mpi_under_a_launcher_that_it_does_not_know(
    installed_mpi: SimpleNamespace, tmp_path: Path
) -> None:
    """As in the cluster user's mishap, N processes start and each of them is alone."""
    launcher = PMI if vendor(installed_mpi.name)[1] == "Open MPI" else OMPI
    first, second = run_all(tmp_path, launcher, 2, "--json")
    assert first[0] == 1 and second[:2] == (0, "")
    (problem,) = problems(first[1])
    assert problem["name"] == "mismatch" and "has started 2" in problem["value"]


def test_the_installed_mpi_under_its_own_mpirun(installed_mpi: SimpleNamespace) -> None:
    facts = child.ask()
    own = mpirun.beside(facts.path, vendor(facts.library)[1])
    if own is None:
        pytest.skip("mpi4py is not installed together with an mpirun")
    environment = clean_environment() | {
        "PYTHONPATH": os.pathsep.join(ROOTS),
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "OMPI_MCA_rmaps_base_oversubscribe": "1",  # Open MPI 4
        "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",  # Open MPI 5
    }
    command = [own, "-n", "3", sys.executable, "-m", "ringcore", "doctor", "--json"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    content = json.loads(done.stdout)
    found = {x["name"]: x["value"] for x in content["findings"]}
    assert done.returncode == 0 and content["ok"] is True
    assert found["launcher"].endswith("processes: 3") and "mismatch" not in found
    assert [x["rank"] for x in content["ranks"]] == [0, 1, 2]
    here = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    assert {x["cores"] for x in content["ranks"]} == {max(1, here // 3)}
    assert found["cores per rank"] == str(max(1, here // 3))
    assert found["number"] == "3, nodes: 1"
