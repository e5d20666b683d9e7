"""Converters of pooling."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import relay

from ..autodiff.composite import composite
from ..autodiff.reduce import euclidean_norm
from ..autodiff.scalars import scalar
from ..relay_graph import Expr, dtype_of, infer_local, shape_of
from .node import Node
from .registry import converter
from .volumes import pool3d
from .windows import spatial_attr, window_padding


@dataclass
class _Windows:
    """Sizes of a pooling node; ``padding`` before each spatial axis, then after each. What
    ceil_mode adds to the last windows is in the padding."""

    kernel: list[int]
    stride: list[int]
    dilation: list[int]
    padding: list[int]
    overhang: list[int]

    def of_pool2d(self) -> dict[str, Any]:
        rank = len(self.kernel)
        ends = [p + o for p, o in zip(self.padding[rank:], self.overhang, strict=True)]
        return {
            "pool_size": self.kernel,
            "strides": self.stride,
            "padding": [*self.padding[:rank], *ends],
            "dilation": self.dilation,
        }


def _windows(node: Node, size: tuple[int, ...]) -> _Windows:
    kernel = [int(k) for k in node.attr("kernel_shape")]
    rank = len(size)
    if rank not in (1, 2, 3) or len(kernel) != rank:
        raise node.error(f"{rank} spatial axes, kernel {kernel}; 1-d to 3-d pooling is supported")
    stride, dilation = spatial_attr(node, "strides", rank), spatial_attr(node, "dilations", rank)
    padding = window_padding(node, size, kernel, stride, dilation)
    overhang = [0] * rank
    if node.attr("ceil_mode", 0):
        for i in range(rank):
            whole = size[i] + padding[i] + padding[i + rank]
            last = math.ceil((whole - dilation[i] * (kernel[i] - 1) - 1) / stride[i])
            if last * stride[i] >= size[i] + padding[i]:  # a window must start inside
                last -= 1
            overhang[i] = max(last * stride[i] + dilation[i] * (kernel[i] - 1) + 1 - whole, 0)
    return _Windows(kernel, stride, dilation, padding, overhang)


def _as_planes(x: Expr, windows: _Windows) -> tuple[Expr, _Windows]:
    """One spatial axis as a plane of one row."""
    pads = windows.padding
    flat = _Windows(
        [1, *windows.kernel],
        [1, *windows.stride],
        [1, *windows.dilation],
        [0, pads[0], 0, pads[1]],
        [0, *windows.overhang],
    )
    return infer_local(relay.expand_dims(x, 2)), flat


@converter("MaxPool")
def max_pool(node: Node) -> list[Expr]:
    x = node.tensor(0)
    windows = _windows(node, shape_of(x)[2:])
    y = _pool(node, x, windows, relay.nn.max_pool2d)
    return [y, _max_indices(node, x, windows, node.shape_of(y))] if node.wants(1) else [y]


def _max_indices(node: Node, x: Expr, windows: _Windows, out: tuple[int, ...]) -> Expr:
    """Number of each window's first largest element in the whole input, (N, C, ...), int64.

    One comparison per place of the window, over all windows at once.
    """
    shape = shape_of(x)
    numbers = _spatial_numbers(shape[2:], bool(node.attr("storage_order", 0)))
    best = index = None
    for value, candidate in _places(x, windows, out, numbers):
        number = relay.const(candidate, "int64")
        if best is None:
            best, index = value, relay.broadcast_to(number, out)
            continue
        # NaN is the largest, as in the pooling itself; -1 is outside of the input.
        more = relay.logical_not(relay.less_equal(value, best))
        first = relay.less(index, relay.const(0, "int64"))
        wins = relay.logical_and(relay.const(candidate >= 0), relay.logical_or(more, first))
        best, index = relay.where(wins, value, best), relay.where(wins, number, index)
    size = math.prod(shape[2:])
    before = np.arange(0, math.prod(shape), size).reshape(shape[:2] + (1,) * (len(shape) - 2))
    return index + relay.const(before, "int64")


def _spatial_numbers(size: tuple[int, ...], column_major: bool) -> np.ndarray:
    """Number of each element of a plane: the last axis changes fastest, or the first."""
    numbers = np.arange(math.prod(size))
    return numbers.reshape(size, order="F" if column_major else "C")


def _places(
    x: Expr, windows: _Windows, out: tuple[int, ...], numbers: np.ndarray
) -> Iterator[tuple[Expr, np.ndarray]]:
    """Per place of a window: the element there of every window, and its number or -1."""
    for place in np.ndindex(*windows.kernel):
        value, found, inside = x, numbers, np.ones(out[2:], bool)
        for i, (count, size) in enumerate(zip(out[2:], numbers.shape, strict=True)):
            first = place[i] * windows.dilation[i] - windows.padding[i]
            row = np.arange(count) * windows.stride[i] + first
            at = np.clip(row, 0, size - 1)
            value = infer_local(relay.take(value, relay.const(at), axis=2 + i, mode="fast"))
            found = np.take(found, at, axis=i)
            along = (row >= 0) & (row < size)
            inside &= along.reshape([-1 if i == k else 1 for k in range(numbers.ndim)])
        yield value, np.where(inside, found, -1)


def _pool(node: Node, x: Expr, windows: _Windows, op: Callable[..., Expr]) -> Expr:
    rank = len(windows.kernel)
    if rank == 3:
        return pool3d(node, x, op, **windows.of_pool2d())
    if rank == 1:
        x, windows = _as_planes(x, windows)
    y = op(x, **windows.of_pool2d())
    return relay.squeeze(y, [2]) if rank == 1 else y


@converter("AveragePool")
def average_pool(node: Node) -> Expr:
    """Averages over whole windows, times a factor where fewer of their places count."""
    x = node.tensor(0)
    size = shape_of(x)[2:]
    windows = _windows(node, size)
    y = node.typed(_average(node, x, windows))
    counts = _counts(windows, size, shape_of(y)[2:], bool(node.attr("count_include_pad", 0)))
    factor = math.prod(windows.kernel) / counts
    return y if np.all(factor == 1) else y * relay.const(factor, dtype_of(x))


def _average(node: Node, x: Expr, windows: _Windows) -> Expr:
    """Average over all places of each window, those outside of the input as zeros."""
    if all(d == 1 for d in windows.dilation):

        def op(x: Expr, **sizes: Any) -> Expr:
            return relay.nn.avg_pool2d(x, count_include_pad=True, **sizes)

        return _pool(node, x, windows, op)
    return _pool(node, x, windows, _average_by_convolution)


def _average_by_convolution(
    x: Expr,
    pool_size: list[int],
    strides: list[int],
    padding: list[int],
    dilation: list[int],
) -> Expr:
    """Windows with gaps: a depthwise convolution whose weights are all the same."""
    channels = shape_of(infer_local(x))[1]
    weight = np.full((channels, 1, *pool_size), 1 / math.prod(pool_size))
    return relay.nn.conv2d(
        x,
        relay.const(weight, dtype_of(x)),
        strides=strides,
        padding=padding,
        dilation=dilation,
        groups=channels,
        channels=channels,
        kernel_size=pool_size,
    )


def _counts(
    windows: _Windows, size: tuple[int, ...], out: tuple[int, ...], with_padding: bool
) -> np.ndarray:
    """How many places of each window count, of shape ``out``."""
    rank, counts = len(size), np.ones((), "int64")
    for i, n in enumerate(out):
        first = np.arange(n)[:, None] * windows.stride[i] - windows.padding[i]
        places = first + np.arange(windows.kernel[i]) * windows.dilation[i]
        low, high = 0, size[i]
        if with_padding:
            low, high = -windows.padding[i], size[i] + windows.padding[i + rank]
        inside = ((places >= low) & (places < high)).sum(1)
        counts = counts[..., None] * inside
    return counts


@converter("LpPool")
def lp_pool(node: Node) -> Expr:
    """The p-norm of each window."""
    x, p = node.tensor(0), node.attr("p", 2)
    windows = _windows(node, shape_of(x)[2:])
    powers = node.typed(_power(x, p))
    sums = _average(node, powers, windows) * scalar(math.prod(windows.kernel), dtype_of(x))
    return sums if p == 1 else relay.power(sums, scalar(1 / p, dtype_of(x)))


def _power(x: Expr, p: int) -> Expr:
    """abs(x) ** p; its gradient keeps x alone and is 0 at 0."""

    def body(x: Expr) -> Expr:
        if p == 1:
            return relay.abs(x)
        factor = x if p % 2 == 0 else relay.abs(x)
        y = factor
        for _ in range(p - 1):
            y = y * factor
        return y

    return composite("absolute_power", [x], body)


@converter("GlobalLpPool")
def global_lp_pool(node: Node) -> Expr:
    x, p = node.tensor(0), node.attr("p", 2)
    axes = list(range(2, len(shape_of(x))))
    if p == 2:
        return euclidean_norm(x, axes, keepdims=True)
    sums = relay.sum(_power(x, p), axis=axes, keepdims=True)
    return sums if p == 1 else relay.power(sums, scalar(1 / p, dtype_of(x)))


@converter("GlobalAveragePool")
def global_average_pool(node: Node) -> Expr:
    x = node.tensor(0)
    return relay.mean(x, axis=list(range(2, len(shape_of(x)))), keepdims=True)


@converter("GlobalMaxPool")
def global_max_pool(node: Node) -> Expr:
    x = node.tensor(0)
    return relay.max(x, axis=list(range(2, len(shape_of(x)))), keepdims=True)
