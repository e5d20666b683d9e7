"""Converters of convolution, normalization and matrix products."""

from __future__ import annotations

from tvm import relay

from ..autodiff.normalization import batch_norm
from ..relay_graph import Expr, dtype_of, shape_of
from .node import Node
from .registry import converter
from .windows import spatial_attr, window_padding


@converter("Conv")
def conv(node: Node) -> Expr:
    x, w = node.tensor(0), node.weight(1)
    size, kernel = shape_of(x)[2:], list(shape_of(w)[2:])
    rank = len(size)
    groups = node.attr("group", 1)
    _check_conv(node, shape_of(x), shape_of(w), groups)
    stride, dilation = spatial_attr(node, "strides", rank), spatial_attr(node, "dilations", rank)
    padding = window_padding(node, size, kernel, stride, dilation)
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
    if rank not in (1, 2) or len(w) != len(x):
        raise node.error(f"input {x} with weight {w}; 1-d and 2-d convolutions are supported")
    if w[1] * groups != x[1] or w[0] % groups:
        raise node.error(
            f"weight {w} with {groups} groups needs {w[1] * groups} input channels, got {x[1]}"
        )


@converter("BatchNormalization")
def batch_normalization(node: Node) -> list[Expr | None]:
    """Training mode always: a model that is exported for inference is here to be trained.

    The running statistics follow ONNX (operator set 15): running * momentum + batch *
    (1 - momentum), with the biased variance of the batch. PyTorch's exporters write
    1 - momentum of PyTorch; PyTorch itself uses the unbiased variance in this update.
    """
    x, gamma, beta = node.tensor(0), node.weight(1), node.weight(2)
    if len(shape_of(x)) < 2:
        raise node.error(f"input {shape_of(x)}; expected at least two axes (N, C, ...)")
    norm = batch_norm(x, gamma, beta, node.attr("epsilon", 1e-5))
    momentum = float(node.attr("momentum", 0.9))
    running = []
    for operand, field in ((3, 1), (4, 2)):
        old = node.running(operand)
        dtype = dtype_of(old)
        keep, take = relay.const(momentum, dtype), relay.const(1 - momentum, dtype)
        running.append(old * keep + relay.TupleGetItem(norm, field) * take)
        node.update_running(operand, running[-1])
    return [relay.TupleGetItem(norm, 0), *running]


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
    a, b = node.weight(0), node.weight(1)
    shape_a, shape_b = shape_of(a), shape_of(b)
    if len(shape_b) == 2 and len(shape_a) >= 2:
        if shape_a[-1] != shape_b[0]:
            raise node.error(f"operands {shape_a} and {shape_b} do not multiply")
        rows = relay.reshape(a, (-1, shape_a[-1])) if len(shape_a) > 2 else a
        y = relay.nn.dense(rows, relay.transpose(b))
        return relay.reshape(y, (*shape_a[:-1], shape_b[1])) if len(shape_a) > 2 else y
    raise node.error(f"operands {shape_a} and {shape_b} are not supported")


@converter("Dropout")
def dropout(node: Node) -> list[Expr | None]:
    """The identity where it drops nothing; it is an error where training would drop values."""
    ratio = float(node.constant(1, node.attr("ratio", 0.5)))
    if ratio != 0.0:
        raise node.error(
            f"dropout with ratio {ratio:g} is not supported in training; export with ratio 0"
        )
    x = node.tensor(0)
    return [x, relay.ones(shape_of(x), "bool") if node.wants(1) else None]


@converter("LRN")
def lrn(node: Node) -> Expr:
    return relay.nn.lrn(
        node.tensor(0),
        size=node.attr("size"),
        axis=1,
        bias=node.attr("bias", 1.0),
        alpha=node.attr("alpha", 1e-4),
        beta=node.attr("beta", 0.75),
    )
