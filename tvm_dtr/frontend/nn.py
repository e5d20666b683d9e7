"""Converters of convolution, normalization and matrix products."""

from __future__ import annotations

import math

from tvm import relay

from ..autodiff.composite import composite
from ..autodiff.scalars import broadcast_shape, scalar
from ..relay_graph import Expr, dtype_of, shape_of
from ..relay_ops import conv2d_input_gradient, dropout_mask
from .node import Node
from .registry import converter
from .volumes import conv3d, conv3d_transpose
from .windows import spatial_attr, transposed_window, window_padding


@converter("Conv")
def conv(node: Node) -> Expr:
    x, w = node.tensor(0), node.weight(1)
    size, kernel = shape_of(x)[2:], list(shape_of(w)[2:])
    rank = len(size)
    groups = node.attr("group", 1)
    _check_conv(node, shape_of(x), shape_of(w), groups)
    stride, dilation = spatial_attr(node, "strides", rank), spatial_attr(node, "dilations", rank)
    padding = window_padding(node, size, kernel, stride, dilation)
    if rank == 3:
        y = conv3d(x, w, stride, padding, dilation, groups)
        return relay.nn.bias_add(y, node.weight(2)) if node.has(2) else y
    if rank == 1:  # a 2-d convolution over one row
        x, w = relay.expand_dims(x, 2), relay.expand_dims(w, 2)
        kernel, stride, dilation = [1, *kernel], [1, *stride], [1, *dilation]
        padding = [0, padding[0], 0, padding[1]]
    y = relay.nn.conv2d(
        x,
        w,
        strides=stride,
        padding=padding,
        dilation=dilation,
        groups=groups,
        channels=shape_of(node.weight(1))[0],
        kernel_size=kernel,
    )
    if rank == 1:
        y = relay.squeeze(y, [2])
    return relay.nn.bias_add(y, node.weight(2)) if node.has(2) else y


def _check_conv(node: Node, x: tuple[int, ...], w: tuple[int, ...], groups: int) -> None:
    rank = len(x) - 2
    if rank not in (1, 2, 3) or len(w) != len(x):
        raise node.error(f"input {x} with weight {w}; 1-d to 3-d convolutions are supported")
    if w[1] * groups != x[1] or w[0] % groups:
        raise node.error(
            f"weight {w} with {groups} groups needs {w[1] * groups} input channels, got {x[1]}"
        )


@converter("Gemm")
def gemm(node: Node) -> Expr:
    a, b = node.tensor(0), node.weight(1)
    if len(shape_of(a)) != 2 or len(shape_of(b)) != 2:
        raise node.error(f"operands {shape_of(a)} and {shape_of(b)}; expected two matrices")
    inner_a = shape_of(a)[0 if node.attr("transA", 0) else 1]
    inner_b = shape_of(b)[1 if node.attr("transB", 0) else 0]
    if inner_a != inner_b:
        raise node.error(f"operands {shape_of(a)} and {shape_of(b)} do not multiply")
    if node.attr("transA", 0):
        a = relay.transpose(a)
    y = relay.nn.dense(a, b if node.attr("transB", 0) else relay.transpose(b))
    dtype = node.dtype(0)
    if node.attr("alpha", 1.0) != 1.0:
        y = y * relay.const(node.attr("alpha"), dtype)
    if not node.has(2):
        return y
    c = node.weight(2)
    if node.attr("beta", 1.0) != 1.0:
        c = c * relay.const(node.attr("beta"), dtype)
    return relay.add(y, c)


@converter("MatMul")
def matmul(node: Node) -> Expr:
    """NumPy's rules: vectors, matrices, and stacks of matrices that broadcast."""
    a, b = node.weight(0), node.weight(1)
    shape_a, shape_b = shape_of(a), shape_of(b)
    if not shape_a or not shape_b or shape_a[-1] != shape_b[max(len(shape_b) - 2, 0)]:
        raise node.error(f"operands {shape_a} and {shape_b} do not multiply")
    rows = () if len(shape_a) == 1 else shape_a[-2:-1]
    columns = () if len(shape_b) == 1 else shape_b[-1:]
    if len(shape_b) <= 2:
        y = relay.nn.dense(relay.reshape(a, (-1, shape_a[-1])), _turned(node, b))
        return relay.reshape(y, (*shape_a[:-1], *columns))
    if len(shape_a) == 1:
        a = relay.reshape(a, (1, shape_a[0]))
    batch = broadcast_shape(shape_a[:-2], shape_b[:-2])
    count = math.prod(batch)
    a = node.typed(a)
    full_a, full_b = (*batch, *shape_of(a)[-2:]), (*batch, *shape_b[-2:])
    a = a if shape_of(a) == full_a else relay.broadcast_to(a, full_a)
    b_turned = node.typed(_turned(node, b))
    full_b = (*batch, *shape_of(b_turned)[-2:])
    b_turned = b_turned if shape_of(b_turned) == full_b else relay.broadcast_to(b_turned, full_b)
    y = relay.nn.batch_matmul(
        relay.reshape(a, (count, *full_a[-2:])),
        relay.reshape(b_turned, (count, *full_b[-2:])),
        transpose_b=True,
    )
    return relay.reshape(y, (*batch, *rows, *columns))


def _turned(node: Node, b: Expr) -> Expr:
    """``b`` with its last two axes exchanged; undoes an exchange rather than doing a second."""
    shape = shape_of(b)
    if len(shape) == 1:
        return relay.reshape(b, (1, shape[0]))
    swap = [*range(len(shape) - 2), len(shape) - 1, len(shape) - 2]
    is_transpose = isinstance(b, relay.Call) and b.op.name == "transpose"
    if is_transpose and b.attrs.axes is not None and [int(i) for i in b.attrs.axes] == swap:
        node.used.append(b.args[0])
        return b.args[0]
    return relay.transpose(b, swap)


@converter("ConvTranspose")
def conv_transpose(node: Node) -> Expr:
    """The input gradient of a convolution, as an op of its own."""
    x, w = node.tensor(0), node.weight(1)
    size, kernel = shape_of(x)[2:], list(shape_of(w)[2:])
    rank, groups = len(size), node.attr("group", 1)
    if rank not in (1, 2, 3) or len(kernel) != rank:
        raise node.error(f"input {shape_of(x)}; 1-d to 3-d convolutions are supported")
    if shape_of(w)[0] != shape_of(x)[1] or shape_of(w)[0] % groups:
        raise node.error(f"weight {shape_of(w)} does not fit input {shape_of(x)}")
    stride, dilation = spatial_attr(node, "strides", rank), spatial_attr(node, "dilations", rank)
    out, before = transposed_window(node, size, kernel, stride, dilation)
    if rank == 3:
        y = conv3d_transpose(x, w, out, stride, before, dilation, groups)
        return relay.nn.bias_add(y, node.weight(2)) if node.has(2) else y
    if rank == 1:
        x, w = relay.expand_dims(x, 2), relay.expand_dims(w, 2)
        out, before = [1, *out], [0, *before]
        stride, dilation = [1, *stride], [1, *dilation]
    y = conv2d_input_gradient(
        x, w, size=out, stride=stride, before=before, dilation=dilation, groups=groups
    )
    if rank == 1:
        y = relay.squeeze(y, [2])
    return relay.nn.bias_add(y, node.weight(2)) if node.has(2) else y


@converter("Dropout")
def dropout(node: Node) -> list[Expr | None]:
    """Training mode as for batch normalization, with a new mask each step.

    The mask is a function of the step's random key, of this layer and of the position, so the
    backward pass and recomputations draw it again instead of keeping it.
    """
    x = node.tensor(0)
    shape, dtype = shape_of(x), dtype_of(x)
    ratio = float(node.constant(1, node.attr("ratio", 0.5)))
    if not 0 <= ratio < 1:
        raise node.error(f"dropout ratio {ratio:g}; expected a value in [0, 1)")
    if ratio == 0 or not node.training:
        return [x, relay.ones(shape, "bool") if node.wants(1) else None]
    key, stream = node.random_key()

    def body(x: Expr, key: Expr) -> Expr:
        return x * dropout_mask(key, shape, dtype, ratio, stream)

    y = composite("dropout", [x, key], body)
    if not node.wants(1):
        return [y, None]
    mask = dropout_mask(key, shape, dtype, ratio, stream)
    return [y, relay.greater(mask, scalar(0, dtype))]
