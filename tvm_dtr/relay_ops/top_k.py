"""Positions of the k largest or smallest elements along an axis (TopK)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tvm import relay, te, tir
from tvm.ir import TensorType

from ..relay_graph import Expr
from .cpu import VectorUnit
from .registration import call_op, flat, ints, is_nan, register_op

NAME = "dtr.top_k"


def top_k(x: Expr, k: int, axis: int, largest: bool = True) -> relay.Call:
    """int64 indices of the ``k`` best elements along ``axis``, the best first.

    Equal elements come in the order of their indices; NaN counts as the largest, as in PyTorch.
    """
    return call_op(NAME, [x], k=k, axis=axis, largest=int(largest))


def _beats(a: Any, b: Any, largest: bool) -> Any:
    """Does value ``a`` come before ``b`` whatever their places? A total order, with NaN in it."""
    rank_a, rank_b = (tir.Select(is_nan(x), tir.const(1), tir.const(0)) for x in (a, b))
    if largest:
        return tir.any(a > b, rank_a > rank_b)
    return tir.any(a < b, rank_a < rank_b)


def _ties(a: Any, b: Any) -> Any:
    # Not as neither beats the other: TVM makes a <= b of Not(a > b), which is wrong for NaN.
    return tir.any(a == b, tir.all(is_nan(a), is_nan(b)))


def _compute(
    attrs: Any, inputs: Sequence[te.Tensor], out_type: TensorType, unit: VectorUnit
) -> list[te.Tensor]:
    (tensor,) = inputs
    shape, axis, k = ints(tensor.shape), int(attrs["axis"]), int(attrs["k"])
    largest = bool(int(attrs["largest"]))
    outer, size, inner = math.prod(shape[:axis]), shape[axis], math.prod(shape[axis + 1 :])

    def body(ins: Any, outs: Any) -> Any:
        ib = tir.ir_builder.create()
        x, index = flat(ib, ins[0]), flat(ib, outs[0])
        with ib.for_range(0, outer * inner, "line", kind="parallel") as line:
            start = line // inner * (size * inner) + line % inner
            place = line // inner * (k * inner) + line % inner
            last = ib.allocate("int32", 1, "last", scope="global")
            best = ib.allocate("int32", 1, "best", scope="global")
            last[0] = tir.const(-1, "int32")
            # One pass over the line for each result: no memory beside it, and k is small.
            with ib.for_range(0, k, "j") as j:
                best[0] = tir.const(-1, "int32")
                with ib.for_range(0, size, "a") as a:
                    value = x[start + a * inner]
                    before = x[start + tir.max(last[0], 0) * inner]
                    later = tir.any(
                        last[0] < 0,
                        _beats(before, value, largest),
                        tir.all(_ties(value, before), a > last[0]),
                    )
                    top = x[start + tir.max(best[0], 0) * inner]
                    with ib.if_scope(
                        tir.all(later, tir.any(best[0] < 0, _beats(value, top, largest)))
                    ):
                        best[0] = a
                index[place + j * inner] = tir.Cast("int64", best[0])
                last[0] = best[0]
        return ib.get()

    result = (*shape[:axis], k, *shape[axis + 1 :])
    return [te.extern(result, [tensor], body, name="top_k", dtype="int64")]


def _type_of(attrs: Any, types: Sequence[TensorType]) -> TensorType:
    shape, axis = ints(types[0].shape), int(attrs["axis"])
    return TensorType((*shape[:axis], int(attrs["k"]), *shape[axis + 1 :]), "int64")


register_op(NAME, ["x"], _type_of, _compute)
