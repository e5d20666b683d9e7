"""Choice of kernels: the last rewriting of a step before it is compiled."""

from __future__ import annotations

import math

from tvm import relay

from ..relay_graph import Expr, calls_op, post_order, rebuild, shape_of
from .direct_conv import conv2d
from .registration import ints


def use_own_kernels(roots: list[Expr]) -> list[Expr]:
    """``roots`` (typed) with each 2-d convolution of floats as our own op."""
    table: dict[Expr, Expr] = {}
    for expr in post_order(roots):
        new = rebuild(expr, table.__getitem__)
        if calls_op(expr, "nn.conv2d"):
            new = _own_conv2d(expr, new)
        table[expr] = new
    return [table[root] for root in roots]


def packing_pays(groups: int, batch: int, channels: int, out: tuple[int, ...]) -> bool:
    """Whether TVM's op with the schedule of compile/convolution.py is the faster choice.

    It packs weights and one image a thread. Measured at batch 64, milliseconds of CPU, packed
    against direct: 64 channels to 8x8 3.0 and 4.2, 512 to 4x4 51 and 93; but 16 to 32x32 5.9 and
    3.6, 3 to 32x32 2.7 and 0.7.
    """
    return groups == 1 and batch >= 8 and channels >= 16 and math.prod(out) <= 256


def _own_conv2d(typed: relay.Call, call: relay.Call) -> relay.Call:
    attrs = call.attrs
    if attrs.data_layout != "NCHW" or not typed.checked_type.dtype.startswith("float"):
        return call
    batch, channels = shape_of(typed.args[0])[:2]
    if packing_pays(int(attrs.groups), batch, channels, shape_of(typed)[2:]):
        return call
    x, w = call.args
    new = conv2d(
        x,
        w,
        out=shape_of(typed)[2:],
        stride=ints(attrs.strides),
        before=ints(attrs.padding)[:2],
        dilation=ints(attrs.dilation),
        groups=int(attrs.groups),
    )
    return relay.Call(new.op, new.args, new.attrs, new.type_args, call.span)
