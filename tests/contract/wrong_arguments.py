"""Wrong arguments of attention: each row is what is wrong, the error, and a part of its message.

For tests over threads (`tests/contract`) and over MPI (`tests/mpi`).
"""

from __future__ import annotations

import numpy as np

import ringcore as rc

L, D, E = 4, 3, 2


def right(ring):
    """Arguments that are right on every rank."""
    length = L * ring.size
    q, k, v = (np.ones((2, L, n), np.float32) for n in (D, D, E))
    return [q, k, v], {"ring": ring, "layout": rc.Layout.contiguous(length=length, ranks=ring.size)}


def wrong_array(place, make):
    def change(arrays, options):
        arrays[place] = make(arrays[place])

    return change


def wrong_option(**given):
    def change(arrays, options):
        options.update({k: f(options) if callable(f) else f for k, f in given.items()})

    return change


def longer(options):
    ranks = options["ring"].size
    return rc.Layout.contiguous(length=(L + 1) * ranks, ranks=ranks)


def more_ranks(options):
    ranks = options["ring"].size
    return rc.Layout.contiguous(length=L * ranks, ranks=ranks + 1)


WRONG = {
    "not an array": (wrong_array(0, lambda x: x.tolist()), TypeError, "arrays of one library"),
    "no axis of tokens": (wrong_array(1, lambda x: x[0, 0]), ValueError, "same number of axes"),
    "dtype": (wrong_array(2, lambda x: x.astype(np.float64)), TypeError, "share one dtype"),
    "head dim": (wrong_array(0, lambda x: x[..., 1:]), ValueError, "head dimension D"),
    "heads": (wrong_array(0, lambda x: np.ones((3, L, D), np.float32)), ValueError, "multiple"),
    "heads of k and v": (wrong_array(2, lambda x: x[:1]), ValueError, "same heads G"),
    "batch": (wrong_array(0, lambda x: x[None]), ValueError, "same number of axes"),
    "length": (wrong_array(0, lambda x: x[:, 1:]), ValueError, "this rank's part of"),
    "layout": (wrong_option(layout="zigzag"), TypeError, "must be a ringcore.Layout"),
    "layout of another length": (wrong_option(layout=longer), ValueError, "this rank's part of"),
    "layout of other ranks": (wrong_option(layout=more_ranks), ValueError, "the ranks of the ring"),
    "mask": (wrong_option(mask=np.ones((L, L), bool)), TypeError, "ringcore.dense(array)"),
    "mask for another batch": (wrong_option(mask=rc.padding([1, 2])), ValueError, "broadcast to batch"),
    "scale": (wrong_option(scale=float("nan")), ValueError, "finite number"),
    "side": (wrong_option(side="both"), ValueError, "side must be"),
    "way": (wrong_option(way="scenic"), ValueError, "way must be"),
    "seq_axis": (wrong_option(seq_axis=1), ValueError, "seq_axis must be"),
}

DIFFERENT = {
    "scale": lambda rank, ranks: {"scale": 1.0 + rank},
    "mask": lambda rank, ranks: {"mask": rc.window(rank, 0)},
    "side": lambda rank, ranks: {"side": ("kv", "q")[rank % 2]},
    "way": lambda rank, ranks: {"way": ("ring", "direct")[rank % 2]},
    "layout": lambda rank, ranks: {
        "layout": (rc.Layout.contiguous, rc.Layout.striped)[rank % 2](length=L * ranks, ranks=ranks)
    },
}
"""What a rank passes differently from the others."""

BACKWARD = {
    "wrt": ({"wrt": ("q", "w")}, ValueError, "wrt must name"),
    "wrt twice": ({"wrt": ("q", "q")}, ValueError, "each once"),
    "no wrt": ({"wrt": ()}, ValueError, "one or more"),
    "dout": ({"dout": np.ones((2, L, D), np.float32)}, ValueError, "dout must have shape"),
    "dlse": ({"dlse": np.ones((L,), np.float32)}, ValueError, "dlse must have shape"),
    "dtype": ({"dout": np.ones((2, L, E), np.float64)}, TypeError, "dout must have the dtype"),
}
