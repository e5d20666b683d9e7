"""Converters of pooling."""

from __future__ import annotations

from typing import Any

from tvm import relay

from ..relay_graph import Expr, shape_of
from .node import Node
from .registry import converter
from .windows import spatial_attr, window_padding


def _pool(node: Node, op: Any, **more: Any) -> Expr:
    x = node.tensor(0)
    size, kernel = shape_of(x)[2:], [int(k) for k in node.attr("kernel_shape")]
    rank = len(size)
    if rank not in (1, 2) or len(kernel) != rank:
        raise node.error(f"input {shape_of(x)}; 1-d and 2-d pooling are supported")
    stride, dilation = spatial_attr(node, "strides", rank), spatial_attr(node, "dilations", rank)
    padding = window_padding(node, size, kernel, stride, dilation)
    if rank == 1:
        x = relay.expand_dims(x, 2)
        kernel, stride, dilation = [1, *kernel], [1, *stride], [1, *dilation]
        padding = [0, padding[0], 0, padding[1]]
    y = op(
        x,
        pool_size=kernel,
        strides=stride,
        padding=padding,
        dilation=dilation,
        ceil_mode=bool(node.attr("ceil_mode", 0)),
        **more,
    )
    return relay.squeeze(y, [2]) if rank == 1 else y


@converter("MaxPool")
def max_pool(node: Node) -> Expr:
    if node.wants(1):
        raise node.error("the indices output of MaxPool is not supported")
    return _pool(node, relay.nn.max_pool2d)


@converter("AveragePool")
def average_pool(node: Node) -> Expr:
    return _pool(
        node, relay.nn.avg_pool2d, count_include_pad=bool(node.attr("count_include_pad", 0))
    )


@converter("GlobalAveragePool")
def global_average_pool(node: Node) -> Expr:
    x = node.tensor(0)
    return relay.mean(x, axis=list(range(2, len(shape_of(x)))), keepdims=True)


@converter("GlobalMaxPool")
def global_max_pool(node: Node) -> Expr:
    x = node.tensor(0)
    return relay.max(x, axis=list(range(2, len(shape_of(x)))), keepdims=True)
