"""One attention problem: a short description from which every array follows, and the reference for it.

A `Problem` holds sizes, layouts, a mask as an expression and a seed, so that its repr is a line that can be
pasted into a test. Arrays, mask objects and reference are made from it on demand and kept.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ringcore.dtypes import accumulation_name
from ringcore.layout import Layout
from ringcore.testing import events, oracle
from ringcore.testing.arrays import from_numpy, round_to
from ringcore.testing.drawn_mask import DrawnMask
from ringcore.testing.oracle import Results

lse_dtype = accumulation_name


class Shards(NamedTuple):
    """A rank's part of the inputs, sequence on ``seq_axis``; ``dlse`` is (\\*B, H, L_q) or None."""

    q: Any
    k: Any
    v: Any
    dout: Any
    dlse: Any


class Poison(NamedTuple):
    """A NaN or inf put into the first number at one position of an input.

    ``row`` counts batch rows and heads together; None is all of them.
    """

    name: str
    position: int
    value: float
    row: int | None = None


_NO_MASK = DrawnMask()
_TILE = 512  # no kernel's tiles have longer sides


@dataclass(frozen=True, kw_only=True)
class Problem:
    """A whole attention problem, forward and backward, over any number of ranks.

    Attributes
    ----------
    xp : module
        Array API namespace of the arrays, as array_api_compat gives it.
    q_layout, k_layout : Layout
        Of queries and of keys; they fix S_q, S_k and P.
    mask : DrawnMask
        Who sees whom.
    dtype : str
        'float64', 'float32', 'float16' or 'bfloat16'.
    batch : tuple of int
        Batch dims \\*B.
    heads : (int, int) or None
        H and G, H % G == 0. None: 2-d arrays, one head.
    D, E : int
        Head dim and value head dim.
    scale : float or None
        None is the library's default, 1/sqrt(D).
    spread : float
        Factor of the queries, hence of the scores; 100 makes the softmax one-hot, 0 flat.
    fill : float or None
        Instead of normal values this one everywhere: the roundings of a sum of equal terms all go the same
        way, and do not cancel as those of random terms do.
    side, way : str
        What `ringcore.attention` is asked for.
    tile : (int, int) or None
        Rows and columns of a score tile, for kernels that can be told; None is their own choice.
    seq_axis : int
        -2, or -3 for arrays of shape (\\*B, L, H, D).
    with_dlse : bool
        Whether lse has a cotangent.
    seed : int
        Of the values, drawn from normal distributions and rounded to ``dtype``; unless ``fill`` is given.
    poison : Poison or None
        A NaN or inf somewhere.

    Examples
    --------
    >>> import numpy
    >>> from ringcore.testing import Call
    >>> problem = Problem(xp=numpy, q_layout=Layout.zigzag(length=5, ranks=2), mask=DrawnMask(Call("causal")))
    >>> problem.q.shape, problem.shards(1).q.shape, problem.reference.lse.shape
    ((1, 5, 2), (1, 2, 2), (1, 5))
    """

    xp: ModuleType | Any
    q_layout: Layout
    k_layout: Layout | Any = None
    mask: DrawnMask = _NO_MASK
    dtype: str = "float64"
    batch: tuple[int, ...] = ()
    heads: tuple[int, int] | None = (1, 1)
    D: int = 2
    E: int = 2
    scale: float | None = None
    spread: float = 1.0
    fill: float | None = None
    side: str = "auto"
    way: str = "auto"
    tile: tuple[int, int] | None = None
    seq_axis: int = -2
    with_dlse: bool = True
    seed: int = 0
    poison: Poison | None = None

    def __post_init__(self) -> None:
        if self.k_layout is None:
            object.__setattr__(self, "k_layout", self.q_layout)
        if self.k_layout.ranks != self.q_layout.ranks:
            raise ValueError(
                "q_layout and k_layout must have the same number of ranks. "
                f"Got {self.q_layout.ranks} and {self.k_layout.ranks}."
            )
        if self.heads is not None and self.heads[0] % self.heads[1]:
            raise ValueError(f"heads must be (H, G) with H % G == 0. Got {self.heads}.")
        if self.heads is None and (self.batch or self.seq_axis != -2):
            raise ValueError("heads=None means 2-d arrays (L, D): batch must be () and seq_axis -2.")

    def __repr__(self) -> str:
        shown = [f"xp={self.xp.__name__}"]
        for name, field in self.__dataclass_fields__.items():
            value = getattr(self, name)
            same = name == "k_layout" and value == self.q_layout
            if name != "xp" and not same and value != field.default:
                shown.append(f"{name}={value!r}")
        return f"{type(self).__name__}({', '.join(shown)})"

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(repr(self))  # what hypothesis prints of a failing example

    # ------------------------------------------------------------------ sizes

    @property
    def S_q(self) -> int:
        """Global number of queries."""
        return self.q_layout.length

    @property
    def S_k(self) -> int:
        """Global number of keys."""
        return self.k_layout.length

    @property
    def ranks(self) -> int:
        """Number of ranks P."""
        return self.q_layout.ranks

    def shape_of(self, name: str) -> tuple[int, ...]:
        """Whole shape of an input or result by its name, heads before the sequence."""
        side = "k" if name in ("k", "v", "dk", "dv") else "q"
        length = self.S_k if side == "k" else self.S_q
        lead = () if self.heads is None else (*self.batch, self.heads[side == "k"])
        if name in ("lse", "dlse"):
            return (*lead, length)
        return (*lead, length, self.E if name in ("v", "dv", "out", "dout") else self.D)

    @property
    def factor(self) -> float:
        """The contract's factor of u cond: 8, and n/4 more where all n terms of a sum are equal.

        n is the longest sum inside one product of ringcore's kernels: a head dimension, or the side of a
        tile, times H / G where the query heads of a group are stacked on its rows.
        """
        if self.fill is None:
            return 8.0
        group = 1 if self.heads is None else self.heads[0] // self.heads[1]
        longest = max(self.D, self.E, min(self.S_k, _TILE), min(self.S_q, _TILE) * group)
        return 8.0 + longest / 4

    # ------------------------------------------------------------------ arrays

    @cached_property
    def values(self) -> dict[str, NDArray[np.float64]]:
        """q, k, v, dout and dlse of the whole sequence as float64; each number is exact in ``dtype``."""
        rng = np.random.default_rng(self.seed)
        made = {}
        for name in ("q", "k", "v", "dout", "dlse"):
            shape = self.shape_of(name)
            x = rng.standard_normal(shape) if self.fill is None else np.full(shape, self.fill)
            x = x * (self.spread if name == "q" else 1.0)
            made[name] = round_to(x, lse_dtype(self.dtype) if name == "dlse" else self.dtype)
        if self.poison is not None:
            name, position, value, row = self.poison
            first = made[name] if name == "dlse" else made[name][..., 0]  # (*B, heads, S), a view
            flat = first.reshape(-1, first.shape[-1]) if first.ndim > 1 else first[None]
            flat[slice(None) if row is None else row, position] = value
        return made

    def _array(self, name: str) -> Any:
        dtype = lse_dtype(self.dtype) if name == "dlse" else self.dtype
        return from_numpy(self.xp, self.values[name], dtype)

    @cached_property
    def q(self) -> Any:
        """Queries of the whole sequence, (\\*B, H, S_q, D)."""
        return self._array("q")

    @cached_property
    def k(self) -> Any:
        """Keys of the whole sequence, (\\*B, G, S_k, D)."""
        return self._array("k")

    @cached_property
    def v(self) -> Any:
        """Values of the whole sequence, (\\*B, G, S_k, E)."""
        return self._array("v")

    @cached_property
    def dout(self) -> Any:
        """Cotangent of out, (\\*B, H, S_q, E)."""
        return self._array("dout")

    @cached_property
    def dlse(self) -> Any:
        """Cotangent of lse, (\\*B, H, S_q), accumulation dtype; None unless ``with_dlse``."""
        return self._array("dlse") if self.with_dlse else None

    def shards(self, rank: int) -> Shards:
        """What a rank holds, as it passes it to `ringcore.attention`."""
        made = []
        for name in Shards._fields:
            layout = self.k_layout if name in ("k", "v") else self.q_layout
            x = getattr(self, name)
            if name == "dlse":
                made.append(None if x is None else layout.shard(x, rank, axis=-1))
                continue
            part = layout.shard(x, rank, axis=-2)
            made.append(self.xp.moveaxis(part, -2, -3) if self.seq_axis == -3 else part)
        return Shards(*made)

    def options(self, rank: int) -> dict[str, Any]:
        """Keyword arguments of `ringcore.attention_vjp` on a rank, without ``ring`` and ``backend``."""
        return {
            "layout": self.q_layout,
            "k_layout": None if self.k_layout == self.q_layout else self.k_layout,
            "mask": self.mask.on_rank(self, rank),
            "scale": self.scale,
            "seq_axis": self.seq_axis,
            "side": self.side,
            "way": self.way,
        }

    # ------------------------------------------------------------------ reference

    @cached_property
    def visible(self) -> NDArray[np.bool_]:
        """Who sees whom: bool, (\\*B, H, S_q, S_k)."""
        table = self.mask.visibility(self).table(self.S_q, self.S_k)
        return np.broadcast_to(table, (*self.shape_of("lse"), self.S_k))

    @property
    def _inputs(self) -> dict[str, Any]:
        x = self.values if self.with_dlse else {**self.values, "dlse": None}
        return {**x, "visible": self.visible}

    @cached_property
    def reference(self) -> Results:
        """The right answer, float64, whole sequence."""
        return oracle.reference(**self._inputs, scale=self.scale)

    @cached_property
    def conditions(self) -> Results:
        """Condition numbers of `reference`; see `oracle.conditions`."""
        return oracle.conditions(**self._inputs, scale=self.scale)

    @cached_property
    def dense(self) -> Results:
        """Dense attention in the accumulation dtype of this problem: what `check_no_growth` compares with."""
        return oracle.reference(**self._inputs, scale=self.scale, dtype=accumulation_name(self.dtype))

    @cached_property
    def may_be_nonfinite(self) -> Results:
        """Rows that a NaN or inf of the inputs can reach; see `oracle.may_be_nonfinite`."""
        return oracle.may_be_nonfinite(**self._inputs)

    @cached_property
    def must_be_nonfinite(self) -> Results:
        """Numbers that a NaN or inf of the inputs does reach; see `oracle.must_be_nonfinite`."""
        return oracle.must_be_nonfinite(**self._inputs, scale=self.scale)

    def events(self) -> list[str]:
        """Names of the hard cases that this problem is, from `ringcore.testing.events.HARD_CASES`."""
        return events.of(self)
