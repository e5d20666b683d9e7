"""Floating-point operations of a kernel, for GFLOP/s in profiles.

A multiplication and an addition count as two; an elementwise call as one per element of its
result, a reduction as one per element of its operand, moving data as none.
"""

from __future__ import annotations

import math
from typing import Any

from tvm import relay

from .relay_walk import post_order, types_of

_MOVES = frozenset(
    {
        *("reshape", "expand_dims", "squeeze", "nn.batch_flatten", "transpose", "layout_transform"),
        *("concatenate", "split", "strided_slice", "take", "broadcast_to", "tile", "repeat"),
        *("nn.pad", "cast", "zeros", "ones", "full", "zeros_like", "ones_like", "reverse", "stack"),
        *("gather", "gather_nd", "one_hot", "arange", "image.resize2d", "copy"),
    }
)
_REDUCTIONS = frozenset({"sum", "mean", "max", "min", "prod", "variance", "argmax", "argmin"})
# Filters of convolutions are operand 1; of a gradient with respect to them, the result.
_CONVOLUTIONS = frozenset({"nn.conv2d", "nn.conv1d", "nn.conv3d", "dtr.conv2d"})
_TRANSPOSED = frozenset({"nn.conv2d_transpose", "nn.conv1d_transpose", "dtr.conv2d_input_gradient"})


def flops(primitive: relay.Function) -> int:
    """Floating-point operations of one call of a fused primitive function."""
    calls = (expr for expr in post_order(primitive.body) if isinstance(expr, relay.Call))
    return sum(_flops_of_call(call) for call in calls)


def _flops_of_call(call: relay.Call) -> int:
    name = getattr(call.op, "name", "")
    result = [math.prod(shape) for shape, _ in types_of(call)]
    operands = [shape for arg in call.args for shape, _ in types_of(arg)]
    if name in _MOVES:
        return 0
    if name in ("nn.dense", "nn.matmul", "nn.batch_matmul", "dtr.matmul"):
        transposed = name != "nn.dense" and bool(call.attrs["transpose_a"])
        return 2 * result[0] * operands[0][-2 if transposed else -1]
    if name in _CONVOLUTIONS:
        return 2 * result[0] * math.prod(operands[1][1:])
    if name in _TRANSPOSED:
        return 2 * math.prod(operands[0]) * math.prod(operands[1][1:])
    if name == "dtr.conv2d_weight_gradient":
        dy, weight = operands[0], types_of(call)[0][0]
        return 2 * math.prod(dy) * math.prod(weight[1:])
    if name in _REDUCTIONS or "pool" in name or "softmax" in name or name.startswith("dtr."):
        return _largest(operands)
    return max(result, default=0)


def _largest(shapes: list[tuple[Any, ...]]) -> int:
    return max((math.prod(shape) for shape in shapes), default=0)
