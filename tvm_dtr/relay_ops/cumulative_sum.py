"""Running sums along an axis, in either direction (CumSum and its gradient)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tvm import relay, te, tir
from tvm.ir import TensorType

from ..relay_graph import Expr
from .cpu import VectorUnit
from .registration import call_op, flat, ints, register_op

NAME = "dtr.cumulative_sum"
CHUNK = 64  # neighbouring lines that one task sums


def cumulative_sum(
    x: Expr, axis: int, exclusive: bool = False, backwards: bool = False
) -> relay.Call:
    """Sums of the elements up to each one along ``axis``; ``exclusive`` leaves the element itself
    out, ``backwards`` starts at the end."""
    return call_op(NAME, [x], axis=axis, exclusive=int(exclusive), backwards=int(backwards))


def _compute(
    attrs: Any, inputs: Sequence[te.Tensor], out_type: TensorType, unit: VectorUnit
) -> list[te.Tensor]:
    (tensor,) = inputs
    shape, axis = ints(tensor.shape), int(attrs["axis"])
    exclusive, backwards = bool(int(attrs["exclusive"])), bool(int(attrs["backwards"]))
    outer, size, inner = math.prod(shape[:axis]), shape[axis], math.prod(shape[axis + 1 :])
    chunks = -(-inner // CHUNK)

    def body(ins: Any, outs: Any) -> Any:
        ib = tir.ir_builder.create()
        x, y = flat(ib, ins[0]), flat(ib, outs[0])

        def place(step: Any) -> Any:
            return size - 1 - step if backwards else step

        with ib.for_range(0, outer * chunks, "task", kind="parallel") as task:
            base = task // chunks * (size * inner) + task % chunks * CHUNK
            count = tir.min(inner - task % chunks * CHUNK, CHUNK)
            first = base + place(0) * inner
            with ib.for_range(0, count, "i") as i:
                y[first + i] = tir.const(0, tensor.dtype) if exclusive else x[first + i]
            with ib.for_range(0, size - 1, "step") as step:
                before, at = base + place(step) * inner, base + place(step + 1) * inner
                with ib.for_range(0, count, "i") as i:
                    y[at + i] = y[before + i] + x[(before if exclusive else at) + i]
        return ib.get()

    return [te.extern(shape, [tensor], body, name="cumulative_sum", dtype=tensor.dtype)]


register_op(NAME, ["x"], lambda attrs, types: types[0], _compute)
