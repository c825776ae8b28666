"""What `ringcore bench` is made of, each part against something independent of it."""

from __future__ import annotations

import math
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import threadpoolctl
from hypothesis import given
from hypothesis import strategies as st

import ringcore as rc
from ringcore.cli.bench import files, inputs, room
from ringcore.cli.bench import gemm as gemm_module
from ringcore.cli.bench import peak as peak_module
from ringcore.cli.bench.figures import Taken, figures
from ringcore.cli.bench.gemm import Gemm, cores_of
from ringcore.cli.bench.masks import Words, words
from ringcore.cli.bench.peak import Peak
from ringcore.cli.bench.rows import BOTH, FORWARD, Row, listed, numbers, rows, spreads
from ringcore.cli.bench.watched import Noted, Replay, Watched
from ringcore.cli.errors import InputError
from ringcore.cli.verify.libraries import load
from ringcore.protocols import Recv, Send, Traffic
from ringcore.testing import oracle


def row(**changes: Any) -> Row:
    options = {"lengths": [97], "dims": [8], "masks": ["causal"], "layouts": ["zigzag"], "directions": [BOTH]}
    heads = {"heads": 4, "kv_heads": 2}
    dtype = changes.pop("dtype", "float32")
    options |= {name: [value] for name, value in changes.items() if name in options}
    heads |= {name: value for name, value in changes.items() if name in heads}
    return rows([(load("numpy"), [dtype])], **heads, **options)[0]  # type: ignore[arg-type]


# ------------------------------------------------------------------ masks

VISIBLE: dict[str, Any] = {
    "full": lambda S: oracle.full(),
    "causal": lambda S: oracle.causal(),
    "window": lambda S, n: oracle.window(n - 1, 0),
    "prefix": lambda S, n: oracle.causal() | oracle.prefix(n),
    "documents": lambda S, n: oracle.documents([n] * (S // n + 1)),
}
TERMS = st.one_of(
    st.sampled_from(["full", "causal"]),
    st.tuples(st.sampled_from(["window", "prefix", "documents"]), st.integers(1, 50)).map(
        lambda x: f"{x[0]}:{x[1]}"
    ),
)


def visible(text: str, length: int) -> Any:
    """The matrix by the reference's predicates."""
    found = np.ones((length, length), bool)
    for term in text.split("&"):
        name, *n = term.split(":")
        found &= VISIBLE[name](length, *map(int, n)).table(length, length)
    return found


@given(st.lists(TERMS, min_size=1, max_size=3), st.integers(1, 40))
def test_masks_mean_what_they_say(terms: list[str], length: int) -> None:
    mask, want = words("&".join(terms)), visible("&".join(terms), length)
    i = np.arange(length)
    assert np.array_equal(np.broadcast_to(mask.sees(i[:, None], i[None, :]), want.shape), want)
    assert mask.pairs(length) == want.sum()
    lo, hi = mask.mask(length).lower(np, i, length)
    assert np.array_equal(((lo[..., None] <= i) & (i < hi[..., None])).any(axis=0), want)


def test_pairs_in_closed_form() -> None:
    for S in (1, 1000, 70_001):
        assert words("full").pairs(S) == S * S
        assert words("causal").pairs(S) == S * (S + 1) // 2
        assert words("window:100").pairs(S) == sum(min(i + 1, 100) for i in range(S))
    assert words("window:2:3").pairs(10) == 10 * 6 - (2 + 1) - (1 + 2 + 3)


def test_useful_work() -> None:
    one = row(directions=FORWARD)
    assert one.flops == 2 * 2 * 8 * 4 * 97 * 98 // 2
    assert row().flops == one.flops * 7 // 2
    assert row(kv_heads=4).flops == row().flops, "each query head has its own scores"


NO_MASKS = (
    *("", "casual", "causal&", "causal:3", "window", "window:0", "window:-1", "window:1:2:3"),
    *("prefix:x", "documents:0", "documents:1.5"),
)


@pytest.mark.parametrize("text", NO_MASKS)
def test_what_is_no_mask(text: str) -> None:
    with pytest.raises(InputError, match=r"^--mask .*must (be|have) .* Got "):
        words(text)


def test_spaces_do_not_matter() -> None:
    assert words(" causal &documents : 5") == Words("causal&documents:5")


# ------------------------------------------------------------------ options


def test_lists() -> None:
    assert listed("--x", ["a, b", "a"], "z") == ["a", "b"] and listed("--x", (), "z,y") == ["z", "y"]
    assert numbers("--x", ["16,8", "016"], "1") == [16, 8]
    assert spreads(["striped:64,zigzag"], "") == ["striped:64", "zigzag"]


@pytest.mark.parametrize("text", ["", "0", "-1", "1e3", "1.5", "4_096", "1,", "9999999999", "²"])
def test_what_is_no_number(text: str) -> None:
    with pytest.raises(InputError, match=r"^--x must be"):
        numbers("--x", [text], "1")


@pytest.mark.parametrize("text", ["ring", "striped:", "striped:0", "zigzag:2", "from_lengths", "chunk_start"])
def test_what_is_no_layout(text: str) -> None:
    with pytest.raises(InputError, match=r"^--layout must be"):
        spreads([text], "")


# ------------------------------------------------------------------ arrays


def test_a_number_follows_from_its_position() -> None:
    one = row(lengths=2 * inputs.BLOCK + 17)
    every = np.arange(one.length)
    for name in inputs.NAMES:
        whole = inputs.drawn(one, name, every)
        assert whole.shape == (2 if name in "kv" else 4, one.length, 8)
        for some in (every[::3], every[-20:], every[:0], every[inputs.BLOCK - 1 : inputs.BLOCK + 1]):
            assert np.array_equal(inputs.drawn(one, name, some), whole[:, some])
        assert abs(whole.mean()) < 0.02 and abs(whole.std() - 1) < 0.02
    assert len({inputs.drawn(one, name, every[:1])[0, 0, 0] for name in inputs.NAMES}) == 4
    assert len(np.unique(inputs.drawn(one, "q", every)[0, :, 0])) > 0.99 * one.length, "blocks differ"


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16"])
def test_what_is_exact_is_what_is_given(dtype: str) -> None:
    one, some = row(dtype=dtype), np.arange(5)
    assert np.array_equal(inputs.given(one, "q", some).astype(np.float64), inputs.exact(one, "q", some))


# ------------------------------------------------------------------ memory, files


def test_peak_finds_what_is_freed_again() -> None:
    if not Path("/proc/self/status").exists():
        pytest.skip("no /proc/self/status")
    peak = Peak()
    peak.begin()
    np.ones(8_000_000)
    size, by = peak.end()
    assert by == "VmHWM" and 60e6 < size < 75e6
    peak.begin()
    assert peak.end()[0] < 10e6, "the last one is forgotten"


def test_peak_without_proc(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(peak_module, "_REFS", tmp_path / "no" / "such")
    peak = Peak()
    peak.begin()
    np.ones(1_000_000)
    size, by = peak.end()
    assert by == "tracemalloc" and 8e6 <= size < 9e6


def test_room(monkeypatch: pytest.MonkeyPatch) -> None:
    one = row(lengths=10_000)
    arrays = sum(inputs.given(one, name, np.arange(10_000)).nbytes for name in inputs.NAMES)
    assert 2 * arrays < room.needed(one, 10_000) < 12 * arrays
    room.check([one], rc.Ring(), 3, scaling=False)
    monkeypatch.setattr(room, "free", lambda: 1_000_000)
    threads = [lambda: room.check([one], rc.Ring(), 3, scaling=False)]
    processes = [lambda: rc.run_ranks(2, lambda ring: room.check([one], ring, 2, scaling=True))]
    for attempt in threads + processes:
        with pytest.raises(InputError, match=r"S = 10,000, causal.* needs \d+ MB on .* It has 1 MB free"):
            attempt()
    monkeypatch.setattr(room, "free", lambda: room.needed(one, 10_000) - 10_000)
    with pytest.raises(InputError):
        room.check([one], rc.Ring(), 3, scaling=False)  # three threads, one memory
    monkeypatch.setattr(room, "free", lambda: None)
    room.check([one], rc.Ring(), 3, scaling=True)


def test_files_are_whole_or_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "x"
    files.write("--x", path, b"old")

    def fails(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", fails)
    with pytest.raises(InputError, match=r"^--x .* cannot be written to: No space left"):
        files.write("--x", path, b"new")
    assert path.read_bytes() == b"old" and list(tmp_path.iterdir()) == [path]


# ------------------------------------------------------------------ products


def test_products(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gemm_module, "SIZE", 64)
    seen = []
    product = np.matmul

    def matmul(a: Any, b: Any, out: Any) -> Any:
        infos = threadpoolctl.threadpool_info()
        seen.append((a.shape, a.dtype, {x["num_threads"] for x in infos if x["user_api"] == "blas"}))
        return product(a, b, out=out)

    monkeypatch.setattr(np, "matmul", matmul)
    gemm = Gemm(3)
    gemm.prepare("float64")
    assert gemm.seconds("float64") > 0 and gemm.flops == 3 * 2 * 64**3
    gemm.close()
    assert seen == [((64, 64), np.float64, {1})] * 6, "three to begin with, three timed; one thread each"


def test_cores() -> None:
    with threadpoolctl.threadpool_limits(1, user_api="blas"):
        assert cores_of(None) == cores_of(8) == 1, "no more than BLAS may use"
    assert cores_of(1) == 1 and cores_of(None) >= 1


# ------------------------------------------------------------------ messages


class Slow:
    """A transport that takes its time."""

    rank, size, needs_polling, where, cores = 0, 1, False, "host", None

    def __init__(self) -> None:
        self.traffic, self.lock, self.status = Traffic(), None, "idle"
        self.seen: list[Any] = []

    def exchange(self, sends: Any, recvs: Any) -> Any:
        time.sleep(0.01)
        sent = [(s.to, s.tag, len(s.buffer)) for s in sends]
        self.seen.append((sent, [(r.source, r.tag, len(r.buffer)) for r in recvs]))
        return self

    def test(self) -> bool:
        time.sleep(0.5)
        return False

    def wait(self, timeout: float) -> None:
        time.sleep(0.03)

    def publish(self, buffer: Any, timeout: float) -> Any:
        time.sleep(0.01)
        return {0: buffer}


def test_what_holds_a_rank_up() -> None:
    slow = Slow()
    watched = Watched(slow)  # type: ignore[arg-type]
    watched.notes = []
    watched.status = "busy"
    assert slow.status == "busy" and watched.traffic is slow.traffic and watched.size == 1
    buffer = np.zeros(5, np.uint8)
    exchange = watched.exchange([Send(buffer, 0, 7)], [Recv(buffer[:3], 0, 8)])
    exchange.test()
    exchange.wait(1.0)
    assert 0.04 <= watched.blocked < 0.4, "post and wait; not the look"
    before = watched.blocked
    watched.exchange([], []).wait(1.0)
    assert watched.blocked == before, "nothing to wait for"
    assert watched.notes == [Noted(((0, 7, 5),), ((0, 8, 3),))]
    watched.publish(buffer, 1.0)
    assert 0.01 <= watched.showing < 0.4 and watched.shown == 5
    seconds = Replay(slow, watched.notes * 2).seconds(1.0)  # type: ignore[arg-type]
    assert seconds >= 0.08
    assert slow.seen[-2:] == [([(0, 7, 5)], [(0, 8, 3)])] * 2


def test_replay_between_threads() -> None:
    notes = [Noted(((1, 2, 30), (1, 3, 0)), ((1, 2, 30), (1, 3, 0))), Noted(((1, 4, 7),), ((1, 4, 7),))]

    def replayed(ring: rc.Ring) -> tuple[int, int]:
        other = 1 - ring.rank
        mine = [
            Noted(*(tuple((other, tag, size) for _, tag, size in side) for side in (n.sends, n.recvs)))
            for n in notes
        ]
        assert Replay(ring.transport, mine).seconds(10.0) > 0
        assert Replay(ring.transport, []).seconds(10.0) == 0
        return ring.traffic.messages, ring.traffic.bytes

    assert rc.run_ranks(2, replayed, timeout=10.0) == [(3, 37)] * 2


def test_a_ring_on_a_watched_transport_gives_the_same() -> None:
    x = np.random.default_rng(0).standard_normal((2, 30, 4))
    layout = rc.Layout.zigzag(length=30, ranks=3)

    def on_each_rank(ring: rc.Ring, watch: bool) -> Any:
        with rc.Ring(Watched(ring.transport) if watch else ring.transport) as own:
            mine = layout.shard(x, ring.rank)
            out, pullback = rc.attention_vjp(mine, mine, mine, ring=own, layout=layout)
            return out, *pullback(out)

    plain, watched = (rc.run_ranks(3, on_each_rank, watch, timeout=20.0) for watch in (False, True))
    for a, b in zip(plain, watched, strict=True):
        assert all(np.array_equal(x, y) for x, y in zip(a, b, strict=True))


# ------------------------------------------------------------------ figures


def test_figures() -> None:
    one = row()
    shared: dict[str, Any] = {"calls": 5, "gemm_flops": 10_000_000, "cores": 2, "peak_by": "VmHWM"}
    first = Taken(
        seconds=[1.0, 4.0, 2.0], blocked=[0.1, 0.1, 0.1], showing=[0.0, 0.0, 0.3], alone=[1.0, 1.0, 1.0],
        gemm=[0.4, 0.6, 1.5, 0.5], one_rank=[3.0, 3.0, 3.0], one_rank_cores=2, messages=3, bytes=100,
        shown=7, flops=one.flops, peak=5, **shared,
    )  # fmt: skip
    second = Taken(
        seconds=[2.0, 1.0, 2.0], blocked=[0.4, 0.5, 0.6], showing=[0.0] * 3, alone=[1.0, 1.0, 1.0],
        gemm=[0.1, 0.5, 0.5, 0.1], messages=4, bytes=50, flops=one.flops, peak=9, **shared,
    )  # fmt: skip
    f = figures(one, [first, second])
    assert f.seconds == 2.0, "the median of the slowest rank's 2, 4, 2"
    assert f.gflops == pytest.approx(one.flops / 2e9)
    assert f.gemm_gflops == pytest.approx(20_000_000 / 0.55 / 1e9)
    shares = [one.flops / s / (20_000_000 / g) for s, g in ((2, 0.5), (4, 1.05), (2, 1.0))]
    assert f.share == pytest.approx(sorted(shares)[1]), "of neighbours"
    assert (f.useful, f.messages, f.bytes, f.shared_bytes) == (0.5, 7, 150, 7)
    assert f.held_up == 0.5 and f.overlap == pytest.approx(1 - 0.6 / 2)
    assert (f.peak_bytes, f.cores, f.loops, f.calls) == (9, 4, 3, 5)
    assert f.speedup == 1.5 and f.efficiency == 0.75
    assert math.isclose(sum(f.samples["alone_seconds"][0]), 3)


def test_figures_of_one_rank() -> None:
    taken = Taken(
        cores=1, seconds=[1.0], blocked=[0.0], showing=[0.0], alone=[0.0], gemm=[1.0, 1.0], gemm_flops=100
    )
    f = figures(row(), [taken])
    assert f.overlap is None and f.useful is None and f.speedup is None and f.efficiency is None


def test_ranks_that_share_a_process_count_once() -> None:
    taken = {"seconds": [1.0], "blocked": [0.0], "showing": [0.0], "alone": [0.0]}
    both = [Taken(cores=2, gemm=[1.0, 1.0], gemm_flops=100, **taken), Taken(cores=0, **taken)]  # type: ignore[arg-type]
    f = figures(row(), both)
    assert f.cores == 2 and f.gemm_gflops == pytest.approx(100 / 1e9)
