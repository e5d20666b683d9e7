"""Choice of kernels: the last rewriting of a step before it is compiled."""

from __future__ import annotations

import math

from tvm import relay

from ..relay_facts import name_of
from ..relay_graph import Expr, ExprMap, post_order, rebuild, shape_of
from .direct_conv import conv2d
from .matmul import matmul
from .registration import ints

LEAST_PRODUCT = 4096  # multiplications; less is over before it is worth packing
LEAST_COLUMNS = 4  # fewer do not fill a vector


def use_own_kernels(roots: list[Expr]) -> list[Expr]:
    """``roots`` (typed) with convolutions and matrix products of floats as our own ops."""
    table = ExprMap()
    for expr in post_order(roots):
        new = rebuild(expr, table.__getitem__)
        if isinstance(expr, relay.Call) and name_of(expr) in _OWN:
            new = _OWN[name_of(expr)](expr, new)
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
    return _in_place_of(call, new)


def _own_dense(typed: relay.Call, call: relay.Call) -> relay.Call:
    return _product(typed, call, False, True)


def _own_batch_matmul(typed: relay.Call, call: relay.Call) -> relay.Call:
    return _product(typed, call, bool(call.attrs.transpose_a), bool(call.attrs.transpose_b))


def _product(
    typed: relay.Call, call: relay.Call, transpose_a: bool, transpose_b: bool
) -> relay.Call:
    """Our op, which also takes over the transposing of its operands."""
    shapes = [shape_of(arg) for arg in typed.args]
    dtypes = {expr.checked_type.dtype for expr in (*typed.args, typed)}
    if dtypes not in ({"float32"}, {"float64"}):
        return call
    depth = shapes[0][-2 if transpose_a else -1]
    if any(len(shape) not in (2, 3) for shape in shapes) or len(shapes[0]) != len(shapes[1]):
        return call
    if math.prod(shape_of(typed)) * depth < LEAST_PRODUCT or shape_of(typed)[-1] < LEAST_COLUMNS:
        return call
    (a, turned_a), (b, turned_b) = (_without_transpose(x, len(shapes[0])) for x in call.args)
    new = matmul(a, b, transpose_a != turned_a, transpose_b != turned_b)
    return _in_place_of(call, new)


def _without_transpose(expr: Expr, rank: int) -> tuple[Expr, bool]:
    """What a call exchanges the last two axes of, and whether ``expr`` is such a call."""
    if not isinstance(expr, relay.Call) or getattr(expr.op, "name", "") != "transpose":
        return expr, False
    axes = expr.attrs.axes
    if axes is None or len(axes) == 0:
        return (expr.args[0], True) if rank == 2 else (expr, False)
    order = [int(axis) % rank for axis in axes]
    swap = [*range(rank - 2), rank - 1, rank - 2]
    return (expr.args[0], True) if order == swap else (expr, False)


def _in_place_of(call: relay.Call, new: relay.Call) -> relay.Call:
    return relay.Call(new.op, new.args, new.attrs, new.type_args, call.span)


_OWN = {
    "nn.conv2d": _own_conv2d,
    "nn.dense": _own_dense,
    "nn.batch_matmul": _own_batch_matmul,
}
