"""Writing rows at indices into a copy of a matrix (ScatterElements, ScatterND)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm import relay, te, tir
from tvm.ir import TensorType

from ..relay_graph import Expr
from .cpu import VectorUnit
from .extrema import larger, smaller
from .registration import call_op, flat, ints, register_op

NAME = "dtr.scatter_rows"
REDUCTIONS = ("none", "add", "mul", "max", "min")
CHUNK = 64  # elements of a row that one task writes


def scatter_rows(data: Expr, index: Expr, updates: Expr, reduction: str = "none") -> relay.Call:
    """``data`` (rows, n) with row ``index[i]`` replaced by, or combined with, ``updates[i]``.

    ``index`` (k,) is in range; ``updates`` is (k, n). Indices are visited in order, so what occurs
    twice is combined in the same order every time, and the last one wins without a reduction.
    """
    assert reduction in REDUCTIONS, reduction
    return call_op(NAME, [data, index, updates], reduction=reduction)


def _combined(reduction: str, old: Any, new: Any) -> Any:
    if reduction == "add":
        return old + new
    if reduction == "mul":
        return old * new
    if reduction in ("max", "min"):
        return (larger if reduction == "max" else smaller)(old, new)
    return new


def _compute(
    attrs: Any, inputs: Sequence[te.Tensor], out_type: TensorType, unit: VectorUnit
) -> list[te.Tensor]:
    rows, inner = ints(inputs[0].shape)
    (count,) = ints(inputs[1].shape)
    reduction = str(attrs["reduction"])

    def body(ins: Any, outs: Any) -> Any:
        ib = tir.ir_builder.create()
        data, index, updates, result = (flat(ib, b) for b in (*ins, *outs))
        with ib.for_range(0, -(-inner // CHUNK), "task", kind="parallel") as task:
            first = task * CHUNK
            size = tir.min(first + CHUNK, inner) - first
            with ib.for_range(0, rows, "r") as r, ib.for_range(0, size, "i") as i:
                result[r * inner + first + i] = data[r * inner + first + i]
            with ib.for_range(0, count, "k") as k:
                row = ib.let("row", tir.Cast("int32", index[k]))
                with ib.for_range(0, size, "i") as i:
                    at = row * inner + first + i
                    new = updates[k * inner + first + i]
                    result[at] = _combined(reduction, result[at], new)
        return ib.get()

    shape, dtype = inputs[0].shape, inputs[0].dtype
    return [te.extern(shape, list(inputs), body, name="scatter_rows", dtype=dtype)]


register_op(NAME, ["data", "index", "updates"], lambda attrs, types: types[0], _compute)
