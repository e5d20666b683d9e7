"""Gradient of taking slices by index along an axis (embedding lookup, Gather)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tvm import relay, te, tir
from tvm.ir import TensorType

from ..relay_graph import Expr
from .cpu import VectorUnit
from .registration import call_op, flat, ints, register_op

NAME = "dtr.take_gradient"
ONTO = "dtr.take_gradient_onto"
CHUNK = 64  # elements of a slice that one task sums


def take_gradient(dy: Expr, indices: Expr, shape: Sequence[int], axis: int) -> relay.Call:
    """dx of the given shape, where y = take(x, indices, axis): dy added up at the indices.

    ``indices`` are in range. A task owns a chunk of every slice and visits the indices in order,
    so an index that occurs twice is summed in the same order every time.
    """
    return call_op(NAME, [dy, indices], shape=list(shape), axis=axis)


def take_gradient_onto(onto: Expr, gradient: relay.Call) -> relay.Call:
    """``onto`` plus a call of :func:`take_gradient`, whose own, mostly empty tensor is not made."""
    attrs = gradient.attrs
    dy, indices = gradient.args
    shape, axis = ints(attrs["shape"]), int(attrs["axis"])
    return call_op(ONTO, [onto, dy, indices], shape=list(shape), axis=axis)


def _compute(
    attrs: Any, inputs: Sequence[te.Tensor], out_type: TensorType, unit: VectorUnit
) -> list[te.Tensor]:
    dy_tensor, index_tensor = inputs[-2:]
    shape, axis = ints(attrs["shape"]), int(attrs["axis"])
    outer, inner = math.prod(shape[:axis]), math.prod(shape[axis + 1 :])
    count = math.prod(ints(index_tensor.shape))
    chunks = -(-inner // CHUNK)
    dtype = dy_tensor.dtype

    def body(ins: Any, outs: Any) -> Any:
        ib = tir.ir_builder.create()
        *onto, dy, index, dx = (flat(ib, b) for b in (*ins, *outs))
        with ib.for_range(0, outer * chunks, "task", kind="parallel") as task:
            o, first = task // chunks, task % chunks * CHUNK
            last = tir.min(first + CHUNK, inner)
            with (
                ib.for_range(0, shape[axis], "row") as row,
                ib.for_range(0, last - first, "i") as i,
            ):
                at = (o * shape[axis] + row) * inner + first + i
                dx[at] = onto[0][at] if onto else tir.const(0, dtype)
            with ib.for_range(0, count, "n") as n:
                row = ib.let("row", tir.Cast("int32", index[n]))
                with ib.for_range(0, last - first, "i") as i:
                    at = (o * shape[axis] + row) * inner + first + i
                    dx[at] += dy[(o * count + n) * inner + first + i]
        return ib.get()

    return [te.extern(shape, list(inputs), body, name="take_gradient", dtype=dtype)]


def _type_of(attrs: Any, types: Sequence[TensorType]) -> TensorType:
    return TensorType(list(attrs["shape"]), types[0].dtype)


register_op(NAME, ["dy", "indices"], _type_of, _compute)
register_op(ONTO, ["onto", "dy", "indices"], _type_of, _compute)
