"""Choice of kernels: the last rewriting of a step before it is compiled."""

from __future__ import annotations

from tvm import relay

from ..relay_graph import Expr, post_order, rebuild, shape_of
from .direct_conv import conv2d
from .registration import ints


def use_own_kernels(roots: list[Expr]) -> list[Expr]:
    """``roots`` (typed) with each 2-d convolution of floats as our own op."""
    table: dict[Expr, Expr] = {}
    for expr in post_order(roots):
        new = rebuild(expr, table.__getitem__)
        if isinstance(expr, relay.Call) and expr.op.name == "nn.conv2d":
            new = _own_conv2d(expr, new)
        table[expr] = new
    return [table[root] for root in roots]


def _own_conv2d(typed: relay.Call, call: relay.Call) -> relay.Call:
    attrs = call.attrs
    if attrs.data_layout != "NCHW" or not typed.checked_type.dtype.startswith("float"):
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
