"""Plans that are kept: only for what is short, never for what may differ, and with the same results."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import ringcore as rc
from ringcore import plan as plans
from ringcore.mask import Mask
from ringcore.patterns import full
from ringcore.plan import Plans, identity

CONTIGUOUS = rc.Layout.contiguous(length=12, ranks=3)
STRIPED = rc.Layout.striped(length=12, ranks=3)

MASKS: dict[str, Callable[[], Mask]] = {
    "full": full,
    "causal": rc.causal,
    "window": lambda: rc.window(2, 1),
    "wider": lambda: rc.window(3, 1),
    "both": lambda: rc.causal() & rc.window(2, 1),
    "either": lambda: rc.causal() | rc.window(2, 1),
    "not": lambda: ~rc.causal(),
    "documents": lambda: rc.documents([5, 7]),
    "others": lambda: rc.documents([7, 5]),
}


@dataclass(frozen=True, eq=False)
class Odd(Mask):
    """A mask of a user's."""

    what: Any

    def lower(self, xp: Any, q_pos: Any, S_k: int) -> Any:
        return rc.causal().lower(xp, q_pos, S_k)


def test_equal_masks_have_one_identity_and_others_have_others() -> None:
    found = {name: identity(make()) for name, make in MASKS.items()}
    assert None not in found.values()
    assert len(set(found.values())) == len(MASKS)
    assert found == {name: identity(make()) for name, make in MASKS.items()}
    assert identity(Odd(1)) != identity(Odd(True)) != identity(Odd(1.0))
    assert identity(Odd(np.zeros(2))) != identity(Odd(np.zeros((2, 1))))


def test_what_cannot_be_told_apart_has_no_identity() -> None:
    """What a repr leaves out, or what may change; dense rows are a rank's own."""
    for what in ([1], object(), np.array([None]), (1, [2]), Odd([1]), np.float64(1)):
        assert identity(Odd(what)) is None
    assert identity(rc.dense(np.ones((4, 12), bool))) is None
    assert identity(rc.causal() & rc.dense(np.ones((4, 12), bool))) is None


def test_a_class_that_is_defined_again_is_another_one() -> None:
    @dataclass(frozen=True, eq=False)
    class Again(Odd):
        pass

    first = Again(1)

    @dataclass(frozen=True, eq=False)  # type: ignore[no-redef]
    class Again(Odd):
        pass

    assert identity(first) != identity(Again(1))


def test_equal_calls_share_a_plan_and_others_do_not() -> None:
    kept = Plans()
    found = {name: kept.of(CONTIGUOUS, STRIPED, make(), 1) for name, make in MASKS.items()}
    latest = list(MASKS)[-1]
    assert kept.of(CONTIGUOUS, STRIPED, MASKS[latest](), 1) is found[latest]
    assert kept.of(STRIPED, CONTIGUOUS, MASKS[latest](), 1) is not found[latest]
    assert len({id(plan) for plan in found.values()}) == len(MASKS)


def test_what_is_kept_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = Plans()
    for length in range(3, 60):
        layout = rc.Layout.contiguous(length=length, ranks=3)
        plan = kept.of(layout, layout, full(), 0)
    assert len(kept._kept) == plans._PLANS
    for n in range(500):
        plan.recall(n, lambda n=n: n)  # type: ignore[misc]
    assert plan.memory is not None
    assert len(plan.memory) == plans._ENTRIES
    long = rc.Layout.contiguous(length=10_000, ranks=3)
    many = rc.Layout.contiguous(length=100, ranks=100)
    assert kept.of(long, long, full(), 0).memory is None
    assert kept.of(many, many, full(), 0).memory is None
    monkeypatch.setattr(plans, "_BYTES", 100)
    wide = kept.of(STRIPED, STRIPED, full(), 0)
    assert kept.of(STRIPED, STRIPED, full(), 0) is not wide
    assert len(kept._kept) == plans._PLANS


@pytest.mark.parametrize("check", ["always", "once"])
def test_mixed_calls_on_one_ring_give_the_bits_of_rings_of_their_own(check: str) -> None:
    """Layouts, masks, shapes, dtypes, sides and ways in turn, twice over: whatever is recalled fits."""
    rng = np.random.default_rng(3)
    layouts = [CONTIGUOUS, STRIPED, rc.Layout.zigzag(length=12, ranks=3), rc.Layout.from_lengths([2, 7, 3])]
    calls = [
        (layouts[rng.integers(4)], layouts[rng.integers(4)], name, side, way, heads, dtype)
        for name in MASKS
        for side in ("auto", "kv", "q")
        for way in ("auto", "direct")
        for heads, dtype in [(1, np.float64), (2, np.float32)]
    ]
    rng.shuffle(calls)  # type: ignore[arg-type]
    x = rng.standard_normal((2, 12, 4))

    def on_rank(ring: rc.Ring) -> list[np.ndarray]:
        lasting = rc.Ring(ring.transport, timeout=20, check=check)
        different = []
        for layout, k_layout, name, side, way, heads, dtype in calls[:40] * 2:
            q = layout.shard(x[:heads].astype(dtype), ring.rank)
            k = k_layout.shard(x[:heads].astype(dtype), ring.rank)

            def call(
                ring: rc.Ring, q: Any = q, k: Any = k, layout: Any = layout, k_layout: Any = k_layout,
                name: str = name, side: str = side, way: str = way,
            ) -> list[np.ndarray]:  # fmt: skip
                mask = MASKS[name]()
                out, pullback = rc.attention_vjp(
                    q, k, k, ring=ring, layout=layout, k_layout=k_layout, mask=mask, side=side, way=way
                )
                return [out, *pullback(q, wrt=("k", "q"))]

            kept, fresh = call(lasting), call(rc.Ring(ring.transport, timeout=20, check=check))
            different += [name for a, b in zip(kept, fresh, strict=True) if a.tobytes() != b.tobytes()]
        return different

    assert rc.run_ranks(3, on_rank, timeout=20) == [[], [], []]


def test_calls_that_share_a_plan_send_what_they_would_alone() -> None:
    """Sides, ways, shapes, dtypes and wanted gradients in turn: each has a trip of its own."""
    calls = [
        (side, way, H, dtype, wrt)
        for side in ("auto", "kv", "q")
        for way in ("auto", "ring", "direct")
        for H, dtype in [(1, np.float32), (2, np.float32), (2, np.float16)]  # K and V travel for the second
        for wrt in [("q",), ("k", "v"), ("v",)]
    ]
    np.random.default_rng(0).shuffle(calls)

    def on_rank(ring: rc.Ring) -> list[Any]:
        lasting, layout = rc.Ring(ring.transport, timeout=20), rc.Layout.from_lengths([2, 7, 3])

        def sent(ring: rc.Ring, side: str, way: str, H: int, dtype: Any, wrt: tuple[str, ...]) -> Any:
            before = (ring.traffic.messages, ring.traffic.bytes)
            q = np.ones((H, layout.count(ring.rank), 20), dtype)
            out, pullback = rc.attention_vjp(
                q, q[:1], q[:1], ring=ring, layout=layout, mask=rc.causal(), side=side, way=way
            )
            middle = (ring.traffic.messages, ring.traffic.bytes)
            pullback(out, wrt=wrt)
            after = (ring.traffic.messages, ring.traffic.bytes)
            return np.subtract(middle, before).tolist(), np.subtract(after, middle).tolist()

        different = [
            call for call in calls if sent(lasting, *call) != sent(rc.Ring(ring.transport, timeout=20), *call)
        ]
        assert len(lasting.plans._kept) == 1
        return different

    assert rc.run_ranks(3, on_rank, timeout=20) == [[], [], []]
