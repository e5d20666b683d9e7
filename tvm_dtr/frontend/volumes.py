"""3-d convolution and pooling by 2-d ones.

A 3-d convolution is a sum, over the kernel's depth, of 2-d convolutions of the planes that this
part of the kernel meets. Each is one composite: its backward pass keeps the operands alone and
takes the planes again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm import relay

from ..autodiff.composite import composite
from ..relay_graph import Expr, shape_of
from ..relay_ops import conv2d_input_gradient
from .node import Node

Ints = Sequence[int]


def _planes_first(x: Expr) -> Expr:
    """(N, C, D, H, W) as (N, D, C, H, W), and back."""
    return relay.transpose(x, (0, 2, 1, 3, 4))


def _kernel_plane(w: Expr, shape: tuple[int, ...], k: int) -> Expr:
    begin, end = [0] * 5, list(shape)
    begin[2], end[2] = k, k + 1
    return relay.reshape(relay.strided_slice(w, begin, end), (*shape[:2], *shape[3:]))


def conv3d(
    x: Expr, w: Expr, stride: Ints, padding: Ints, dilation: Ints, groups: int
) -> relay.Call:
    """x (N, C, D, H, W), w (O, C / groups, *kernel); padding before each axis, then after each."""
    (n, c, *size), kernel_shape = shape_of(x), shape_of(w)
    kernel = kernel_shape[2:]
    out = [
        (size[i] + padding[i] + padding[i + 3] - dilation[i] * (kernel[i] - 1) - 1) // stride[i] + 1
        for i in range(3)
    ]

    def body(x: Expr, w: Expr) -> Expr:
        planes = _planes_first(x)
        if padding[0] or padding[3]:
            around = [(0, 0), (padding[0], padding[3]), (0, 0), (0, 0), (0, 0)]
            planes = relay.nn.pad(planes, around)
        total: Expr = None
        for k in range(kernel[0]):
            first = k * dilation[0]
            end = (n, first + (out[0] - 1) * stride[0] + 1, c, *size[1:])
            met = relay.strided_slice(planes, (0, first, 0, 0, 0), end, (1, stride[0], 1, 1, 1))
            y = relay.nn.conv2d(
                relay.reshape(met, (n * out[0], c, *size[1:])),
                _kernel_plane(w, kernel_shape, k),
                strides=stride[1:],
                padding=(padding[1], padding[2], padding[4], padding[5]),
                dilation=dilation[1:],
                groups=groups,
                channels=kernel_shape[0],
                kernel_size=kernel[1:],
            )
            total = y if total is None else relay.add(total, y)
        return _planes_first(relay.reshape(total, (n, out[0], kernel_shape[0], *out[1:])))

    return composite("conv3d", [x, w], body)


def conv3d_transpose(
    x: Expr, w: Expr, out: Ints, stride: Ints, before: Ints, dilation: Ints, groups: int
) -> relay.Call:
    """x (N, C, D, H, W), w (C, O / groups, *kernel), result (N, O, *out)."""
    (n, c, *size), kernel_shape = shape_of(x), shape_of(w)
    filters = kernel_shape[1] * groups

    def body(x: Expr, w: Expr) -> Expr:
        planes = relay.reshape(_planes_first(x), (n * size[0], c, *size[1:]))
        total: Expr = None
        for k in range(kernel_shape[2]):
            y = conv2d_input_gradient(
                planes,
                _kernel_plane(w, kernel_shape, k),
                size=out[1:],
                stride=stride[1:],
                before=before[1:],
                dilation=dilation[1:],
                groups=groups,
            )
            y = relay.reshape(y, (n, size[0], filters, *out[1:]))
            shape = (n, size[0], filters, *out[1:])
            y = _placed(y, shape, stride[0], k * dilation[0] - before[0], out[0])
            if y is not None:
                total = y if total is None else relay.add(total, y)
        return _planes_first(total)

    return composite("conv3d_transpose", [x, w], body)


def _placed(y: Expr, shape: Ints, step: int, first: int, length: int) -> Expr | None:
    """The planes of ``y`` (axis 1) at first, first + step, ... of ``length`` planes; zeros
    else. None where no plane falls inside."""
    taken = [i for i in range(shape[1]) if 0 <= first + i * step < length]
    if not taken:
        return None
    begin, end = [0] * 5, list(shape)
    begin[1], end[1] = taken[0], taken[-1] + 1
    if len(taken) < shape[1]:
        y = relay.strided_slice(y, begin, end)
    if step > 1 and len(taken) > 1:
        y = relay.nn.dilate(y, (1, step, 1, 1, 1))
    low, high = first + taken[0] * step, length - 1 - (first + taken[-1] * step)
    return relay.nn.pad(y, [(0, 0), (low, high), (0, 0), (0, 0), (0, 0)]) if low or high else y


def pool3d(
    node: Node, x: Expr, op: Any, pool_size: Ints, strides: Ints, padding: Ints, dilation: Ints
) -> Expr:
    """Maximum and average are separable: within the planes first, then along the depth."""
    n, c, d, h, w = shape_of(x)
    within = op(
        node.typed(relay.reshape(x, (n, c * d, h, w))),
        pool_size=pool_size[1:],
        strides=strides[1:],
        padding=[padding[1], padding[2], padding[4], padding[5]],
        dilation=dilation[1:],
    )
    rows = shape_of(node.typed(within))[2:]
    y = op(
        node.typed(relay.reshape(within, (n, c, d, rows[0] * rows[1]))),
        pool_size=[pool_size[0], 1],
        strides=[strides[0], 1],
        padding=[padding[0], 0, padding[3], 0],
        dilation=[dilation[0], 1],
    )
    depth = shape_of(node.typed(y))[2]
    return relay.reshape(y, (n, c, depth, *rows))
