"""The pool: who computes where, and whose setting BLAS has before, during and after."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ringcore_numpy.pool import _WORTH_A_THREAD, Cores, available_cores, cores
from threadpoolctl import ThreadpoolController, threadpool_limits

import ringcore as rc
from tests.backends.both import need_compiled

ROOT = Path(__file__).parents[2]
MUCH = 10 * _WORTH_A_THREAD


@pytest.fixture(scope="module", autouse=True)
def _all_of_blas_is_loaded() -> None:
    """SciPy's comes with the compiled kernels; what is loaded later has not heard of a limit."""
    x = np.zeros((1, 1, 1))
    rc.attention(x, x, x)


def blas_threads() -> set[int]:
    return {library["num_threads"] for library in ThreadpoolController().select(user_api="blas").info()}


@pytest.fixture(params=[1, 2, 3])
def allowed(request: pytest.FixtureRequest) -> Iterator[int]:
    """How many threads the caller lets BLAS use."""
    with threadpool_limits(limits=request.param, user_api="blas"):
        assert blas_threads() == {request.param}, "NumPy's BLAS does not obey threadpoolctl here"
        yield request.param


def test_tasks_run_at_once_on_as_many_threads_as_blas_may_use(allowed: int) -> None:
    together, seen = threading.Barrier(allowed), set()

    def task() -> None:
        seen.add((threading.current_thread(), frozenset(blas_threads())))
        together.wait(timeout=20)  # breaks unless all run at the same time

    assert cores.threads() == allowed
    cores.run([task] * (2 * allowed), MUCH)
    assert len({thread for thread, _ in seen}) == allowed
    assert {blas for _, blas in seen} == {frozenset({1})}, "one thread for BLAS in each"
    assert blas_threads() == {allowed}


@pytest.mark.parametrize(("tasks", "flops"), [(1, MUCH), (4, _WORTH_A_THREAD - 1)])
def test_little_work_stays_in_the_calling_thread(tasks: int, flops: int) -> None:
    seen = set()
    with threadpool_limits(limits=3, user_api="blas"):
        cores.run([lambda: seen.add((threading.current_thread(), *blas_threads()))] * tasks, flops)
        assert seen == {(threading.current_thread(), 1)}
        assert blas_threads() == {3}


def test_every_task_runs_once(allowed: int) -> None:
    done: list[int] = []
    cores.run([lambda i=i: done.append(i) for i in range(200)], MUCH)  # type: ignore[misc]
    assert sorted(done) == list(range(200))


def test_an_exception_is_raised_when_all_have_ended_and_the_setting_is_back(allowed: int) -> None:
    ended: list[str] = []

    def slow() -> None:
        time.sleep(0.1)
        ended.append("slow")

    def bad() -> None:
        raise ZeroDivisionError("in a task")

    for tasks in ([slow, bad, slow], [bad] * 5):
        with pytest.raises(ZeroDivisionError, match="in a task"):
            cores.run(tasks, MUCH)
        assert blas_threads() == {allowed}
    if allowed > 1:
        assert ended == ["slow", "slow"]
    cores.run([slow, slow], MUCH)
    assert ended[-2:] == ["slow", "slow"], "the pool works on after an exception"


@pytest.mark.parametrize("failing", [False, True])
def test_users_that_overlap_leave_the_callers_setting_behind(allowed: int, failing: bool) -> None:
    """The first one in sees it, the last one out restores it; neither is the other."""
    inside, let_go = threading.Event(), threading.Event()

    def first_task() -> None:
        inside.set()
        assert let_go.wait(20)
        if failing:
            raise ValueError("first")

    def first() -> None:
        try:
            cores.run([first_task], 0)
        except ValueError:
            assert failing

    thread = threading.Thread(target=first)
    thread.start()
    assert inside.wait(20)

    def second_task() -> None:
        let_go.set()
        thread.join(20)
        assert not thread.is_alive()
        assert blas_threads() == {1}, "the first one has gone, the limit holds"

    cores.run([second_task], 0)
    assert blas_threads() == {allowed}


def test_many_users_at_random_times(allowed: int) -> None:
    def user(seed: int) -> None:
        rng = np.random.default_rng(seed)
        for _ in range(10):
            cores.run([lambda: time.sleep(float(rng.random()) * 1e-3)] * 3, MUCH)
            assert cores.threads() == allowed

    users = [threading.Thread(target=user, args=(seed,)) for seed in range(5)]
    for thread in users:
        thread.start()
    for thread in users:
        thread.join(60)
    assert blas_threads() == {allowed}


def test_the_pool_grows_with_the_setting() -> None:
    mine = Cores()
    for threads in (2, 3, 2):
        with threadpool_limits(limits=threads, user_api="blas"):
            together = threading.Barrier(threads)
            mine.run([lambda b=together: b.wait(timeout=20)] * threads, MUCH)  # type: ignore[misc]
    assert 1 <= available_cores() <= 10_000


def test_ranks_that_are_threads_share_the_cores_and_leave_no_limit(allowed: int) -> None:
    x = np.random.default_rng(0).standard_normal((2, 300, 16))
    layout = rc.Layout.zigzag(length=300, ranks=3)

    def on_rank(ring: rc.Ring) -> Any:
        mine = layout.shard(x, ring.rank)
        out, pullback = rc.attention_vjp(mine, mine, mine, ring=ring, layout=layout, mask=rc.causal())
        return pullback(out)

    rc.run_ranks(3, on_rank)
    assert blas_threads() == {allowed}


def test_workers_do_not_warn_of_numbers_that_are_not_finite() -> None:
    with warnings.catch_warnings(), threadpool_limits(limits=2, user_api="blas"):
        warnings.simplefilter("error")
        cores.run([lambda: np.exp(np.array([1e9, np.nan])) - np.inf] * 4, MUCH)
        cores.run([lambda: np.exp(np.array([1e9, np.nan])) - np.inf] * 4, 0)


FORK = """
import os, sys, threading
sys.path[:0] = eval(sys.argv[1])
import numpy as np
from threadpoolctl import ThreadpoolController, threadpool_limits
import ringcore as rc
from ringcore_numpy.pool import cores

def blas():
    return {lib["num_threads"] for lib in ThreadpoolController().select(user_api="blas").info()}

def compute():
    x = np.random.default_rng(0).standard_normal((4, 400, 32))
    out, pullback = rc.attention_vjp(x, x, x, mask=rc.causal())
    return b"".join(a.tobytes() for a in (out, *pullback(out)))

def in_child(check):
    pid = os.fork()
    if pid == 0:
        try:
            ok = check()
        except BaseException as error:
            print("child:", repr(error), file=sys.stderr)
            ok = False
        os._exit(0 if ok else 1)
    return os.waitpid(pid, 0)[1] == 0

with threadpool_limits(limits=2, user_api="blas"):
    want = compute()  # the parent's pool has threads now; a child has none of them
    assert in_child(lambda: compute() == want and blas() == {2}), "fork between calls"
    found = []
    def fork_in_a_task():  # another rank's thread may fork while this one computes
        found.append(in_child(lambda: blas() == {2} and cores.threads() == 2 and compute() == want))
    cores.run([fork_in_a_task], 0)
    assert found == [True], "fork while a task runs"
    assert compute() == want and blas() == {2}, "the parent goes on"
print("fine")
"""


def test_a_forked_child_computes_on_with_the_callers_setting() -> None:
    roots = [str(ROOT), str(ROOT / "backends"), str(ROOT / "transports")]
    run = subprocess.run(
        [sys.executable, "-c", FORK, repr(roots)], capture_output=True, text=True, timeout=60, check=False
    )
    assert run.returncode == 0 and run.stdout == "fine\n", run.stderr


BLAS = """
import sys
sys.path[:0] = eval(sys.argv[1])
import numpy as np
import ringcore as rc
from ringcore_numpy.pool import cores
from threadpoolctl import ThreadpoolController, threadpool_limits

x = np.ones((2, 9, 4), np.float32)
with threadpool_limits(1, user_api="blas"):
    rc.attention(x, x, x, mask=rc.dense(np.ones((9, 9), bool)))
    rc.attention(x, x, x, mask=rc.causal())
    inside = []
    cores.run([lambda: inside.extend(ThreadpoolController().select(user_api="blas").info())], 0)
    print(cores.threads(), *{x["num_threads"] for x in inside}, len(inside))
"""


def test_the_blas_that_compiled_kernels_load_obeys_the_callers_setting() -> None:
    """It is loaded by the first step that needs it, when the caller has limited what was there before."""
    need_compiled()
    roots = [str(ROOT), str(ROOT / "backends"), str(ROOT / "transports")]
    program = [sys.executable, "-c", BLAS, repr(roots)]
    run = subprocess.run(program, capture_output=True, text=True, timeout=60, check=True)
    assert run.stdout == "1 1 2\n"
