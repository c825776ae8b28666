"""Which problems are verified: one table of what each row of the report varies."""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Protocol

from ringcore.cli.verify.attention import AttentionCheck
from ringcore.cli.verify.layer import LayerCheck
from ringcore.cli.verify.libraries import DTYPES, Library
from ringcore.cli.verify.outcome import Fault, Measure
from ringcore.layout import Layout
from ringcore.protocols import Array
from ringcore.ring import Ring
from ringcore.testing import And, Call, DenseBits, DrawnMask, Not, Or, Poison, Problem


class Check(Protocol):
    """A problem that ranks solve together and rank 0 judges."""

    def solve(self, ring: Ring, backend: Any) -> Mapping[str, Array]:
        """This rank's results by name. Collective."""
        ...

    def gather(self, ring: Ring, mine: Mapping[str, Array]) -> Mapping[str, Array]:
        """The whole results on rank 0. Collective."""
        ...

    def is_shared(self, name: str) -> bool:
        """Whether a result is whole, and the same, on every rank."""
        ...

    def must_send(self) -> bool:
        """Whether it cannot be solved without sending something."""
        ...

    def judge(self, whole: Mapping[str, Array]) -> tuple[list[Measure], list[Fault]]:
        """Compare with an independent reference."""
        ...


@dataclass(frozen=True)
class Case:
    """One problem, and where it belongs.

    Attributes
    ----------
    library, dtype : str
    section, row : str
        Of the report.
    round : int
        0, 1, ...
    check : Check
    """

    library: str
    dtype: str
    section: str
    row: str
    round: int
    check: Check

    @property
    def name(self) -> str:
        """What --only knows it by: ``numpy/mask/causal/float32``."""
        return f"{self.library}/{_key(self.section, self.row, self.dtype, self.round)}"


def plan(
    libraries: Sequence[tuple[Library, Sequence[str]]],
    ranks: int,
    length: int,
    *,
    seed: int = 0,
    rounds: int = 1,
    quick: bool = False,
    only: str = "",
) -> list[Case]:
    """The cases, in the order of the report.

    Parameters
    ----------
    libraries : sequence of (Library, dtypes)
    ranks, length : int
        P, and S of most problems.
    seed : int
        Of all values; a case has the same ones whatever else is verified.
    rounds : int
        How often each is there, each time with other values and on another layout.
    quick : bool
        Each row with one dtype, in turn.
    only : str
        The case of this name; if there is none, those whose name holds it.

    Examples
    --------
    >>> from ringcore.cli.verify.libraries import load
    >>> for case in plan([(load("numpy"), ["float64", "float32"])], 2, 40, only="mask/docu"):
    ...     print(case.name)
    numpy/mask/documents/float64
    numpy/mask/documents/float32
    """
    found: list[Case] = []
    for library, dtypes in libraries:
        for number in range(rounds):
            columns = [list(_column(library, dtype, ranks, length, number, seed)) for dtype in dtypes]
            for k, row in enumerate(zip(*columns, strict=True)):
                found += [row[k % len(row)]] if quick else row
    exact = [case for case in found if case.name == only]
    return exact or [case for case in found if only in case.name]


def default_length(ranks: int) -> int:
    """S that no number of ranks divides evenly, with ten tokens and more on each."""
    return max(83, 10 * ranks + 3)


def _column(library: Library, dtype: str, P: int, S: int, number: int, seed: int) -> Iterator[Case]:
    """Every row's problem in one dtype, on the four layouts in turn."""
    layouts, turn = _layouts(P, S), DTYPES.index(dtype) + number
    base = {"xp": library.xp, "dtype": dtype, "heads": (4, 2), "D": 16, "E": 16}
    for section, rows in _attention(P, S, turn).items():
        for k, (row, fields) in enumerate(rows.items()):
            key = _key(section, row, dtype, number)
            layout = layouts[(k + turn) % len(layouts)]
            problem = Problem(**{**base, "q_layout": layout, "seed": _seed(seed, key), **fields})
            growth = row in _GROWTH and dtype == "float32" and S >= _GROWTH_FROM
            yield Case(library.name, dtype, section, row, number, AttentionCheck(problem, growth))
    for k, (row, (activation, gated)) in enumerate(_LAYERS.items()):
        key = _key(LAYER, row, dtype, number)
        layout = layouts[(k + turn) % len(layouts)]
        check = LayerCheck(library.xp, layout, dtype, activation, gated, _seed(seed, key))
        yield Case(library.name, dtype, LAYER, row, number, check)


def _key(section: str, row: str, dtype: str, number: int) -> str:
    parts = [section, row, dtype, *([str(number)] if number else [])]
    return "/".join("-".join(part.replace(",", "").split()) for part in parts)


def _seed(seed: int, key: str) -> int:
    return zlib.crc32(f"{seed} {key}".encode())


LAYER = "feedforward"
_LAYERS = {"gelu": ("gelu", False), "gelu_tanh": ("gelu_tanh", False), "silu, gated": ("silu", True)}
_GROWTH = ("logits x 1", "logits x 10", "logits x 100")
_GROWTH_FROM = 64  # tokens; of fewer a root mean square says nothing


def _layouts(P: int, S: int) -> list[Layout]:
    shares = [0 if rank % 3 == 1 else rank + 1 for rank in range(P)]
    cuts = [S * sum(shares[:rank]) // sum(shares) for rank in range(P + 1)]
    return [
        Layout.zigzag(length=S, ranks=P),
        Layout.striped(length=S, ranks=P, block=3),
        Layout.contiguous(length=S, ranks=P),
        Layout.from_lengths([b - a for a, b in pairwise(cuts)]),
    ]


def _attention(P: int, S: int, turn: int) -> Mapping[str, Mapping[str, Mapping[str, Any]]]:
    """Section, row, and the fields of `Problem` in which it differs from causal attention of GQA."""
    zigzag, striped, contiguous, uneven = _layouts(P, S)
    causal, some = Call("causal"), S // 3
    documents = Call("documents", ((7, 0, S // 2, 1, 13),))
    bad = (math.nan, math.inf)[turn % 2]
    key = "kv"[turn % 2]
    masks: dict[str, Any] = {
        "none": DrawnMask(),
        "causal": DrawnMask(causal),
        "window": DrawnMask(Call("window", (9, 4))),
        "documents": DrawnMask(documents),
        "prefix": DrawnMask(Or(causal, Call("prefix", (some,)))),
        "global tokens": DrawnMask(Or(Call("window", (4, 4)), Call("global_tokens", ((0, some),)))),
        "padding": DrawnMask(Call("padding", ((some, S),))),
        "dense": DrawnMask(causal, DenseBits((4,), turn)),
        "combined": DrawnMask(
            And(Or(And(causal, documents), Call("prefix", (5,))), Not(Call("keys", (some, some + 3))))
        ),
        "some see nothing": DrawnMask(Call("causal", (-some,))),
        "nothing to see": DrawnMask(Not(Call("full"))),
    }
    rows: dict[str, dict[str, dict[str, Any]]] = {
        "layout": {
            "contiguous": {"q_layout": contiguous},
            "uneven, empty ranks": {"q_layout": uneven},
            "striped": {"q_layout": striped},
            "zigzag": {"q_layout": zigzag},
            "k unlike q": {"q_layout": zigzag, "k_layout": striped},
            "more ranks than tokens": {"q_layout": Layout.zigzag(length=max(P - 1, 1), ranks=P)},
        },
        "mask": {
            name: {"mask": mask, "batch": (2,) if name == "padding" else ()} for name, mask in masks.items()
        },
        "shape": {
            "H 8, G 2": {"heads": (8, 2)},
            "H 6, G 1": {"heads": (6, 1)},
            "H 3, G 3, B 2 x 2": {"heads": (3, 3), "batch": (2, 2)},
            "2-d arrays": {"heads": None},
            "D 16, E 5": {"E": 5},
            "seq_axis=-3": {"seq_axis": -3, "batch": (2,)},
            "cross-attention": {
                "q_layout": Layout.contiguous(length=some + 1, ranks=P),
                "k_layout": uneven,
                "mask": DrawnMask(Call("causal", (some,))),
            },
            "no cotangent of lse": {"with_dlse": False},
        },
        "scores": {
            "logits x 1": {},
            "logits x 10": {"spread": 10.0},
            "logits x 100": {"spread": 100.0},
            "scale < 0": {"scale": -0.5},
            "equal values": {"fill": 0.3},
        },
        "way": {
            f"{sides} {ways}": {"side": side, "way": way, "mask": DrawnMask(Call("window", (some, some)))}
            for side, sides in (("kv", "k, v"), ("q", "q"))
            for way, ways in (("ring", "round the ring"), ("direct", "direct"))
        },
        "NaN": {
            "in a hidden key": {
                "mask": DrawnMask(And(causal, Not(Call("keys", (some, some + 2))))),
                "poison": Poison(key, some, bad),
            },
            "in a key": {"poison": Poison(key, 2 * some, bad, turn % 2)},
            "in a query": {"poison": Poison("q", some, bad, turn % 4)},
            "in a cotangent": {"poison": Poison("dout", some, bad, turn % 4)},
        },
    }
    return {
        section: {row: {"mask": DrawnMask(causal), **fields} for row, fields in many.items()}
        for section, many in rows.items()
    }
