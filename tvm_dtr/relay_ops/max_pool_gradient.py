"""Gradient of max pooling.

TVM's own keeps a tensor of indices and visits, per input element, all windows over it. This one
walks the windows of each plane once and adds to where the window's maximum is; planes run in
parallel, so the result does not depend on the number of threads.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tvm import relay, te, tir
from tvm.ir import TensorType

from ..relay_graph import Expr
from .cpu import VectorUnit
from .registration import call_op, flat, ints, is_nan, register_op

NAME = "dtr.max_pool2d_gradient"


def max_pool2d_gradient(
    dy: Expr,
    x: Expr,
    kernel: Sequence[int],
    stride: Sequence[int],
    before: Sequence[int],
    dilation: Sequence[int],
) -> relay.Call:
    """dx of y = max_pool2d(x), NCHW. A tie goes to the first in row order, as in PyTorch.

    ``before`` is the padding above and left; what windows reach beyond x on the other sides
    follows from the shape of ``dy``.
    """
    return call_op(
        NAME,
        [dy, x],
        kernel=list(kernel),
        stride=list(stride),
        before=list(before),
        dilation=list(dilation),
    )


@dataclass(frozen=True)
class _Window:
    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    before: tuple[int, ...]
    dilation: tuple[int, ...]
    size: tuple[int, ...]

    def first(self, axis: int, position: Any) -> Any:
        return position * self.stride[axis] - self.before[axis]


def _add_window(ib: Any, w: _Window, x: Any, dx: Any, dy: Any, plane: Any, top: Any) -> None:
    """Find the first maximum of the window at ``top`` = (row, column) and add ``dy`` there."""
    height, width = w.size
    best = ib.allocate(x.dtype, 1, "best", scope="global")
    where = ib.allocate("int32", 1, "where", scope="global")
    best[0] = tir.min_value(x.dtype)
    where[0] = tir.const(-1, "int32")
    with (
        ib.for_range(0, w.kernel[0], "kh") as kh,
        ib.for_range(0, w.kernel[1], "kw") as kw,
    ):
        row, column = top[0] + kh * w.dilation[0], top[1] + kw * w.dilation[1]
        inside = tir.all(row >= 0, row < height, column >= 0, column < width)
        with ib.if_scope(inside):
            value = x[plane + row * width + column]
            with ib.if_scope(tir.any(where[0] < 0, value > best[0], is_nan(value))):
                best[0] = value
                where[0] = row * width + column
    with ib.if_scope(where[0] >= 0):
        dx[plane + where[0]] += dy


def _compute(
    attrs: Any, inputs: Sequence[te.Tensor], out_type: TensorType, unit: VectorUnit
) -> list[te.Tensor]:
    dy_tensor, x_tensor = inputs
    batch, channels, height, width = ints(x_tensor.shape)
    out_height, out_width = ints(dy_tensor.shape)[2:]
    fields = {k: ints(attrs[k]) for k in ("kernel", "stride", "before", "dilation")}
    window = _Window(**fields, size=(height, width))

    def body(ins: Any, outs: Any) -> Any:
        ib = tir.ir_builder.create()
        dy, x, dx = (flat(ib, b) for b in (*ins, *outs))
        with ib.for_range(0, batch * channels, "plane", kind="parallel") as p:
            plane = p * (height * width)
            with ib.for_range(0, height * width, "i") as i:
                dx[plane + i] = tir.const(0, x_tensor.dtype)
            with ib.for_range(0, out_height, "oh") as oh, ib.for_range(0, out_width, "ow") as ow:
                top = (window.first(0, oh), window.first(1, ow))
                value = dy[(p * out_height + oh) * out_width + ow]
                _add_window(ib, window, x, dx, value, plane, top)
        return ib.get()

    return [
        te.extern(
            x_tensor.shape, list(inputs), body, name="max_pool_gradient", dtype=x_tensor.dtype
        )
    ]


register_op(NAME, ["dy", "x"], lambda attrs, types: types[1], _compute)
