"""Single machine instructions that Python has no words for, as functions for numba."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic


@intrinsic
def power_of_two(typingctx: Any, rounded: Any) -> Any:
    """2**n of a float in whose lowest bits lies n + 127 (float64: 1023); NaN gives anything."""
    integer, shift = {types.float32: (ir.IntType(32), 23), types.float64: (ir.IntType(64), 52)}[rounded]

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        bits = builder.shl(builder.bitcast(args[0], integer), ir.Constant(integer, shift))
        return builder.bitcast(bits, args[0].type)

    return rounded(rounded), generate


@intrinsic
def ordered(typingctx: Any, x: Any) -> Any:
    """An integer that compares as the float does, NaN as the largest or smallest; comparing it vectorises."""
    integer, size = {types.float32: (types.int32, 32), types.float64: (types.int64, 64)}[x]
    signature = integer(x)

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return _flip_negative(builder, builder.bitcast(args[0], ir.IntType(size)), size)

    return signature, generate


@intrinsic
def from_ordered(typingctx: Any, order: Any) -> Any:
    """The float behind an integer of `ordered`."""
    x, size = {types.int32: (types.float32, 32), types.int64: (types.float64, 64)}[order]

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.bitcast(_flip_negative(builder, args[0], size), context.get_value_type(x))

    return x(order), generate


def _flip_negative(builder: Any, bits: Any, size: int) -> Any:
    """All bits but the sign, if that is set; its own inverse."""
    integer = ir.IntType(size)
    sign = builder.ashr(bits, ir.Constant(integer, size - 1))
    return builder.xor(bits, builder.lshr(sign, ir.Constant(integer, 1)))


@intrinsic
def add_in_any_order(typingctx: Any, total: Any, term: Any) -> Any:
    """``total + term`` of a sum that may be taken in any order, and so by vectors.

    Only this addition gets the permission: what else is in the loop keeps its order and its NaN.
    """

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.fadd(*args, flags=("reassoc", "nsz"))

    return total(total, total), generate


@intrinsic
def from_half(typingctx: Any, bits: Any) -> Any:
    """float32 of 16 bits: those of a float16 if they come as int16, of a bfloat16 as uint16."""
    single = ir.FloatType()

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        if bits is types.int16:
            return builder.fpext(builder.bitcast(args[0], ir.HalfType()), single)
        upper = builder.shl(builder.zext(args[0], ir.IntType(32)), ir.Constant(ir.IntType(32), 16))
        return builder.bitcast(upper, single)

    return types.float32(bits), generate


def polynomial(*coefficients: float) -> Any:
    """The polynomial of these coefficients, highest power first, as a function of a float; by FMAs."""

    @intrinsic
    def at(typingctx: Any, x: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            total, *rest = (ir.Constant(args[0].type, c) for c in coefficients)
            for c in rest:
                total = builder.fmul(total, args[0], flags=("contract",))
                total = builder.fadd(total, c, flags=("contract",))
            return total

        return x(x), generate

    return at
