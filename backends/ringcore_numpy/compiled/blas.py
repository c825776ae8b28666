"""Matrix products in compiled code: the BLAS that SciPy brings, called by address.

numba does not cache a function that holds an address, so it is an argument of each kernel; the library is
loaded where Python runs (`gemm_of`).
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import get_cython_function_address, intrinsic
from scipy.linalg import cython_blas

from ringcore_numpy.compiled.options import part_of_kernels

Array = Any


_SIGNATURE = str(cython_blas.__pyx_capi__["sgemm"])
if '"void (char *, char *, int *, int *, int *,' not in _SIGNATURE:
    raise ImportError(f"SciPy's BLAS must take 32-bit integers. Its SGEMM is {_SIGNATURE}.")


@cache
def gemm_of(dtype: np.dtype[Any]) -> int:
    """The address of SGEMM or DGEMM."""
    name = {"float32": "sgemm", "float64": "dgemm"}[dtype.name]
    return int(get_cython_function_address("scipy.linalg.cython_blas", name))


@part_of_kernels
def product(
    gemm: int, alpha: Any, a: Array, transpose_a: bool, b: Array, transpose_b: bool, beta: Any, c: Array
) -> None:
    """``c = alpha op(a) @ op(b) + beta c``; matrices whose rows have no gaps, beta = 0 does not read c.

    Fortran sees such a matrix transposed, so it is asked for c^T = op(b)^T op(a)^T.
    """
    inner = a.shape[0] if transpose_a else a.shape[1]
    _gemm(
        gemm, ord("T") if transpose_b else ord("N"), ord("T") if transpose_a else ord("N"),
        c.shape[1], c.shape[0], inner,
        alpha, b.ctypes.data, _row(b), a.ctypes.data, _row(a), beta, c.ctypes.data, _row(c),
    )  # fmt: skip


@part_of_kernels
def _row(x: Array) -> int:
    """Elements from one row to the next; BLAS refuses less than a row of one."""
    return max(x.strides[0] // x.itemsize, x.shape[1]) if x.shape[0] > 1 else x.shape[1]  # type: ignore[no-any-return]


@intrinsic
def _gemm(
    typingctx: Any, gemm: Any, trans_a: Any, trans_b: Any, m: Any, n: Any, k: Any,
    alpha: Any, a: Any, lda: Any, b: Any, ldb: Any, beta: Any, c: Any, ldc: Any,
) -> Any:  # fmt: skip
    """Fortran's ?GEMM, which takes all its arguments by reference."""
    i, p = types.int32, types.uintp
    kinds = (types.int8, types.int8, i, i, i, alpha, p, i, p, i, alpha, p, i)
    addresses = {7, 9, 12}  # of a, b and c

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        pointer = ir.IntType(8).as_pointer()
        passed = []
        for at, value in enumerate(args[1:], start=1):
            if at in addresses:
                passed.append(builder.inttoptr(value, pointer))
                continue
            with builder.goto_entry_block():  # not in a loop: it would take new stack each time
                box = builder.alloca(value.type)
            builder.store(value, box)
            passed.append(builder.bitcast(box, pointer))
        function = ir.FunctionType(ir.VoidType(), [pointer] * len(passed))
        builder.call(builder.inttoptr(args[0], function.as_pointer()), passed)
        return context.get_dummy_value()

    return types.void(p, *kinds), generate
