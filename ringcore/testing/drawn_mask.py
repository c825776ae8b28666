"""A mask as an expression, evaluated twice: as a mask of ringcore, and as the reference's predicate."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ringcore.testing import visibility
from ringcore.testing.arrays import from_numpy
from ringcore.testing.visibility import Visibility

if TYPE_CHECKING:
    from ringcore.testing.problem import Problem


@dataclass(frozen=True, repr=False)
class Call:
    """A constructor by its name, and its arguments: ``Call("window", (4, None))``."""

    name: str
    args: tuple[Any, ...] = ()

    def __repr__(self) -> str:
        return f"Call({self.name!r}, {self.args!r})" if self.args else f"Call({self.name!r})"


@dataclass(frozen=True)
class Not:
    """Complement of an expression."""

    of: Tree


@dataclass(frozen=True)
class And:
    """Intersection of two expressions."""

    left: Tree
    right: Tree


@dataclass(frozen=True)
class Or:
    """Union of two expressions."""

    left: Tree
    right: Tree


Tree = Call | Not | And | Or


def evaluate(tree: Tree, module: Any) -> Any:
    """The expression in the vocabulary of ``module``: ringcore, or `ringcore.testing.oracle`.

    Examples
    --------
    >>> from ringcore.testing import oracle
    >>> evaluate(And(Call("causal"), Not(Call("window", (1, 0)))), oracle)
    (causal(0) & ~window(1, 0))
    """
    match tree:
        case Call(name, args):
            return getattr(module, name)(*args)
        case Not(of):
            return ~evaluate(of, module)
        case And(left, right):
            return evaluate(left, module) & evaluate(right, module)
        case Or(left, right):
            return evaluate(left, module) | evaluate(right, module)


def names(tree: Tree | None) -> frozenset[str]:
    """Constructors and operators that occur in an expression: {'causal', '~', ...}."""
    match tree:
        case None:
            return frozenset()
        case Call(name, _):
            return frozenset([name])
        case Not(of):
            return names(of) | {"~"}
        case And(left, right):
            return names(left) | names(right) | {"&"}
        case Or(left, right):
            return names(left) | names(right) | {"|"}


def per_row(tree: Tree | None) -> bool:
    """Whether batch rows differ: documents or padding with lengths for each of them."""
    match tree:
        case None:
            return False
        case Call("documents", args):
            return np.ndim(args[0]) > 1
        case Call("padding", args):
            return np.ndim(args[0]) > 0
        case Call():
            return False
        case Not(of):
            return per_row(of)
        case And(left, right) | Or(left, right):
            return per_row(left) or per_row(right)


@dataclass(frozen=True)
class DenseBits:
    """A random boolean array: joins by ``&``, and each rank passes its own rows.

    Attributes
    ----------
    lead : tuple of int
        Shape before (S_q, S_k); broadcasts to (\\*B, H).
    seed : int
    """

    lead: tuple[int, ...] = ()
    seed: int = 0

    def table(self, S_q: int, S_k: int) -> NDArray[np.bool_]:
        """Bool, (\\*lead, S_q, S_k); three quarters are True."""
        return np.random.default_rng(self.seed).random((*self.lead, S_q, S_k)) < 0.75


@dataclass(frozen=True, repr=False)
class DrawnMask:
    """A mask and its meaning.

    Attributes
    ----------
    tree : Call, Not, And, Or, or None
        The expression; None is no mask at all.
    dense : DenseBits, optional
        A dense array joined to it by ``&``.

    Examples
    --------
    >>> DrawnMask(Call("causal", (1,))).mask
    causal(1)
    """

    tree: Tree | None = None
    dense: DenseBits | None = None

    def __repr__(self) -> str:
        tail = "" if self.dense is None else f", {self.dense!r}"
        return f"DrawnMask({self.tree!r}{tail})"

    @property
    def mask(self) -> Any:
        """The expression as a mask of ringcore, without the dense array; None if there is no expression."""
        import ringcore

        return None if self.tree is None else evaluate(self.tree, ringcore)

    @property
    def visible(self) -> Visibility:
        """The expression as a predicate, without the dense array."""
        return visibility.full() if self.tree is None else evaluate(self.tree, visibility)

    def visibility(self, problem: Problem) -> Visibility:
        """What it means for a problem, the dense array included."""
        if self.dense is None:
            return self.visible
        return self.visible & visibility.dense(self.dense.table(problem.S_q, problem.S_k))

    def on_rank(self, problem: Problem, rank: int) -> Any:
        """The mask that a rank passes: the dense array cut to its queries."""
        import ringcore

        if self.dense is None:
            return self.mask
        whole = from_numpy(problem.xp, self.dense.table(problem.S_q, problem.S_k), "bool")
        mine = ringcore.dense(problem.q_layout.shard(whole, rank, axis=-2))
        return mine if self.tree is None else self.mask & mine
