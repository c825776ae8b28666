"""Cases 29 to 31 and 34, as far as they need neither MPI nor a GPU: what moves, when, and what is kept."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import ringcore as rc
from ringcore import wire
from ringcore.block import GenericBackend
from ringcore.partial import Partial
from ringcore.protocols import Exchange, Recv, Send
from ringcore.testing import Call, DrawnMask, Problem, check_attention, oracle, solve
from tests.bare import BareTransport
from tests.contract.one_of_many import peaks
from tests.contract.problems import CHOICES, layouts_of
from tests.libraries import LIBRARIES

CAUSAL = DrawnMask(Call("causal"))
SIXTEEN_BITS = {"float16": np.float16, "bfloat16": ml_dtypes.bfloat16}

# ------------------------------------------------------------------ 29


def every_pattern(dtype: str) -> np.ndarray:
    """All 65,536 numbers of 16 bits: every NaN payload, infinities, -0, subnormals."""
    return np.arange(1 << 16, dtype=np.uint16).view(SIXTEEN_BITS[dtype]).reshape(256, 256)


@pytest.mark.parametrize("dtype", SIXTEEN_BITS)
@pytest.mark.parametrize("name", ["numpy", "torch", "jax"])
def test_case_29_the_wire_keeps_every_bit_pattern(name, dtype):
    library = LIBRARIES[name]()
    values = every_pattern(dtype)
    kernel = GenericBackend()
    x = library.asarray(values)
    (back,) = kernel.unpack(kernel.pack([x], "host"), x)
    assert back.dtype == x.dtype
    assert library.numpy(back).view(np.uint16).tolist() == values.view(np.uint16).tolist()


@pytest.mark.parametrize("dtype", SIXTEEN_BITS)
@pytest.mark.parametrize("name", ["numpy", "torch"])
def test_case_29_collectives_keep_every_bit_pattern(name, dtype):
    library = LIBRARIES[name]()
    values = every_pattern(dtype)
    old, new = rc.Layout.zigzag(length=256, ranks=3), rc.Layout.striped(length=256, ranks=3)

    def on_rank(ring):
        x = library.asarray(values) if ring.rank == 0 else None
        return ring.gather(rc.reshard(ring.scatter(x, old), ring, old, new), new)

    back = rc.run_ranks(3, on_rank, timeout=20.0)[0]
    assert np.array_equal(library.numpy(back).view(np.uint16), values.view(np.uint16))


@pytest.mark.parametrize("dtype", SIXTEEN_BITS)
def test_case_29_sums_over_ranks_are_formed_in_float32(dtype):
    """1 + 64 x 1/64 of an ulp: each addition alone would be lost in 16 bits."""
    one = np.ones(3, SIXTEEN_BITS[dtype])
    tiny = one * SIXTEEN_BITS[dtype](np.finfo(one.dtype).eps if dtype == "float16" else 2.0**-7) / 4

    def on_rank(ring):
        return ring.allreduce(one if ring.rank == 0 else tiny)

    for total in rc.run_ranks(9, on_rank, timeout=20.0):
        assert total.dtype == one.dtype
        assert np.all(total.astype(np.float32) == np.float32(1) + 8 * tiny.astype(np.float32))


@pytest.mark.parametrize("dtype", SIXTEEN_BITS)
def test_case_29_dk_and_dv_are_summed_over_ranks_in_float32(dtype):
    """Rounded once at the end; held to the bound of float32 but for that."""
    for ranks in (2, 8):
        for side, way in CHOICES:
            layout = rc.Layout.contiguous(length=48, ranks=ranks)
            problem = Problem(xp=np, q_layout=layout, dtype=dtype, D=4, E=4, side=side, way=way)
            check_attention(problem, solve(problem))


# ------------------------------------------------------------------ 30


class Lazy(BareTransport):
    """A transport that moves data only while it is asked, as many an MPI does."""

    needs_polling = True

    def __init__(self, inner: Any) -> None:
        super().__init__(inner)
        self.asked_by: set[int] = set()

    def exchange(self, sends: Sequence[Send], recvs: Sequence[Recv]) -> Exchange:
        return _LazyExchange(self, sends, recvs)


class _LazyExchange:
    """Nothing happens before `test` has been called a few times."""

    def __init__(self, transport: Lazy, sends: Any, recvs: Any) -> None:
        self._transport, self._messages, self._left, self._inner = transport, (sends, recvs), 3, None

    def test(self) -> bool:
        self._transport.asked_by.add(threading.get_ident())
        self._left -= 1
        if self._left > 0:
            return False
        if self._inner is None:
            self._inner = self._transport.inner.exchange(*self._messages)
        return self._inner.test()

    def wait(self, timeout: float) -> None:
        while not self.test():
            if self._inner is not None:
                self._inner.wait(timeout)


@dataclass(frozen=True)
class Waiting(GenericBackend):
    """Computes only when its rank's exchange is complete: hangs unless somebody polls meanwhile."""

    moved: Any = None
    failed: Any = None

    def attend(self, q: Any, k: Any, v: Any, step: Any, into: Partial | None) -> Partial:
        if not self.moved():
            self.failed.append(True)
        return super().attend(q, k, v, step, into)


def test_case_30_data_moves_while_the_kernels_compute():
    """The first block has arrived before the first kernel ends, polled by the calling thread alone."""
    layout = rc.Layout.contiguous(length=24, ranks=4)
    x = np.random.default_rng(30).standard_normal((24, 3))

    def on_rank(ring):
        transport = Lazy(ring.transport)
        last: list[_LazyExchange] = []
        post = transport.exchange

        def remember(sends, recvs):
            last.append(post(sends, recvs))
            return last[-1]

        transport.exchange = remember
        enough = threading.Event()

        def moved() -> bool:
            for _ in range(2000):
                inner = last[-1]._inner
                if inner is not None and inner.test():
                    return True
                enough.wait(0.005)
            return False

        failed: list[bool] = []
        mine = layout.shard(x, ring.rank)
        out = rc.attention(
            mine, mine, mine, ring=rc.Ring(transport), layout=layout, side="kv",
            backend=Waiting(moved=moved, failed=failed),
        )  # fmt: skip
        assert failed == []
        assert transport.asked_by == {threading.get_ident()}
        return out

    out = layout.unshard(rc.run_ranks(4, on_rank, timeout=30.0))
    assert np.allclose(out, oracle.attention(x, x, x)[0], rtol=1e-12)


# ------------------------------------------------------------------ 31


@pytest.mark.timeout(60)
@pytest.mark.parametrize("ranks", [1, 2, 3, 5])
def test_case_31_no_order_of_messages_hangs(ranks):
    ahead = DrawnMask(Call("window", (0, 4)))
    for turn, layout in enumerate(layouts_of(11, ranks)):
        for place, mask in enumerate((DrawnMask(), CAUSAL, ahead)):
            side, way = CHOICES[(turn + place) % 4]
            problem = Problem(xp=np, q_layout=layout, mask=mask, side=side, way=way)
            check_attention(problem, solve(problem, timeout=10.0))


@pytest.mark.timeout(60)
@pytest.mark.parametrize("ranks", [2, 3, 5])
def test_case_31_receives_and_sends_of_a_hop_are_posted_together(ranks):
    """One exchange a hop, so that a transport can post its receives first: nobody sends and then waits."""

    def on_rank(ring):
        posts: list[tuple[int, int]] = []
        post = ring.transport.exchange

        def note(sends, recvs):
            posts.append((len(sends), len(recvs)))
            return post(sends, recvs)

        ring.transport.exchange = note
        x = np.ones((4, 2))
        rc.attention(x, x, x, ring=ring, side="kv", way="ring")
        return posts

    for posts in rc.run_ranks(ranks, on_rank, timeout=10.0):
        assert posts == [(1, 1)] * (ranks - 1) + [(0, 0)]


# ------------------------------------------------------------------ 34


@pytest.mark.parametrize("side", ["kv", "q"])
def test_case_34_no_float32_copy_of_16_bit_inputs_is_kept(side):
    """Inputs and travelling blocks of half the size; only sums and results are float32."""
    H, D, S, ranks = 2, 128, 8192, 4
    layout, mask = rc.Layout.striped(length=S, ranks=ranks), rc.documents([256] * (S // 256))
    (short,) = peaks(layout, mask, [1], H=H, D=D, dtype="float16", side=side)
    (long,) = peaks(layout, mask, [1], H=H, D=D, dtype="float32", side=side)
    shard = H * (S // ranks) * D * 4
    for which in ("forward", "backward"):
        saved = getattr(long, which) - getattr(short, which)
        assert saved >= 2.2 * shard, which  # q, k, v, dout alone make 2, and so would copies of K and V cost


def test_case_34_the_wire_holds_16_bit_numbers():
    x = np.ones((3, 64), np.float16)
    assert wire.pack([x, x]).buffer.nbytes == 2 * x.nbytes
