"""Converters of ops that read or write at indices."""

from __future__ import annotations

import math

import numpy as np
from tvm import relay

from ..autodiff.composite import composite
from ..relay_graph import Expr, shape_of
from ..relay_ops import cumulative_sum, scatter_rows, top_k
from .node import Node
from .registry import converter

_SCATTER_REDUCTIONS = ("none", "add", "mul", "max", "min")


def in_range(index: Expr, size: int) -> Expr:
    """int64 indices from 0 to ``size - 1``: negative ones count from the end.

    Out of range is undefined in ONNX; clipped, it can at least not touch foreign memory.
    """
    index = relay.cast(index, "int64")
    zero = relay.const(0, "int64")
    index = relay.where(relay.less(index, zero), index + relay.const(size, "int64"), index)
    return relay.clip(index, 0, size - 1)


def _strides(shape: tuple[int, ...]) -> list[int]:
    return [math.prod(shape[i + 1 :]) for i in range(len(shape))]


def _element_places(
    index: Expr, index_shape: tuple[int, ...], shape: tuple[int, ...], axis: int
) -> Expr:
    """Places in a flat tensor of ``shape`` of the elements at ``index`` along ``axis``; the other
    coordinates are those of the index itself."""
    strides = _strides(shape)
    place = in_range(index, shape[axis]) * relay.const(strides[axis], "int64")
    for i, n in enumerate(index_shape):
        if i != axis and n > 1:
            steps = (np.arange(n) * strides[i]).reshape([-1] + [1] * (len(shape) - i - 1))
            place = place + relay.const(steps, "int64")
    return relay.reshape(place, (-1,))


def _slice_places(index: Expr, index_shape: tuple[int, ...], shape: tuple[int, ...]) -> Expr:
    """Rows of a tensor of ``shape`` whose last index axis counts its leading axes."""
    depth = index_shape[-1]
    strides = _strides(shape[:depth])
    place: Expr = relay.const(0, "int64")
    for i in range(depth):
        begin, end = [0] * len(index_shape), list(index_shape)
        begin[-1], end[-1] = i, i + 1
        part = in_range(relay.strided_slice(index, begin, end), shape[i])
        place = place + part * relay.const(strides[i], "int64")
    return relay.reshape(place, (-1,))


def _take_rows(rows: Expr, places: Expr) -> Expr:
    return relay.take(rows, places, axis=0, mode="fast")


def gather_elements(x: Expr, index: Expr, axis: int) -> Expr:
    """Elements of typed ``x`` at typed ``index`` along ``axis``; the backward pass keeps the index
    alone and counts the places again."""
    shape, index_shape = shape_of(x), shape_of(index)

    def body(x: Expr, index: Expr) -> Expr:
        places = _element_places(index, index_shape, shape, axis)
        return relay.reshape(_take_rows(relay.reshape(x, (-1,)), places), index_shape)

    return composite("gather_elements", [x, index], body)


@converter("GatherElements")
def convert_gather_elements(node: Node) -> Expr:
    x, index = node.weight(0), node.tensor(1)
    rank = len(shape_of(x))
    if len(shape_of(index)) != rank:
        raise node.error(f"indices {shape_of(index)} of data {shape_of(x)}: the ranks differ")
    return gather_elements(x, index, node.attr("axis", 0) % rank)


@converter("GatherND")
def gather_nd(node: Node) -> Expr:
    x, index = node.weight(0), node.tensor(1)
    shape, index_shape = shape_of(x), shape_of(index)
    lead = node.attr("batch_dims", 0)
    depth = index_shape[-1]
    if lead + depth > len(shape):
        raise node.error(f"indices {index_shape} name {lead + depth} axes of data {shape}")
    batch, rest = shape[:lead], shape[lead + depth :]

    def body(x: Expr, index: Expr) -> Expr:
        count = math.prod(batch)
        per_batch = (count, math.prod(index_shape[lead:-1]), depth)
        flat = relay.reshape(index, per_batch)
        places = relay.reshape(
            _slice_places(flat, per_batch, shape[lead : lead + depth]), per_batch[:2]
        )
        step = math.prod(shape[lead : lead + depth])
        first = relay.const((np.arange(count) * step).reshape(-1, 1), "int64")
        rows = relay.reshape(x, (-1, math.prod(rest)))
        taken = _take_rows(rows, relay.reshape(places + first, (-1,)))
        return relay.reshape(taken, (*index_shape[:-1], *rest))

    return composite("gather_nd", [x, index], body)


def _reduction(node: Node) -> str:
    reduction = node.attr("reduction", "none")
    if reduction not in _SCATTER_REDUCTIONS:
        raise node.error(f"reduction '{reduction}'; expected {', '.join(_SCATTER_REDUCTIONS)}")
    return str(reduction)


@converter("Scatter", "ScatterElements")
def scatter_elements(node: Node) -> Expr:
    x, index, updates = node.tensor(0), node.tensor(1), node.tensor(2)
    shape, axis = shape_of(x), node.attr("axis", 0) % len(shape_of(x))
    if shape_of(index) != shape_of(updates):
        raise node.error(f"indices {shape_of(index)} and updates {shape_of(updates)} differ")
    places = node.typed(_element_places(index, shape_of(index), shape, axis))
    rows, new = relay.reshape(x, (-1, 1)), relay.reshape(updates, (-1, 1))
    return relay.reshape(scatter_rows(rows, places, new, _reduction(node)), shape)


@converter("ScatterND")
def scatter_nd(node: Node) -> Expr:
    x, index, updates = node.tensor(0), node.tensor(1), node.tensor(2)
    shape, index_shape = shape_of(x), shape_of(index)
    depth = index_shape[-1]
    if depth > len(shape):
        raise node.error(f"indices {index_shape} name {depth} axes of data {shape}")
    if shape_of(updates) != (*index_shape[:-1], *shape[depth:]):
        raise node.error(f"updates {shape_of(updates)} do not fit indices {index_shape}")
    places = _slice_places(index, index_shape, shape)
    inner = math.prod(shape[depth:])
    rows, new = relay.reshape(x, (-1, inner)), relay.reshape(updates, (-1, inner))
    return relay.reshape(scatter_rows(rows, places, new, _reduction(node)), shape)


@converter("TopK")
def convert_top_k(node: Node) -> list[Expr | None]:
    x = node.tensor(0)
    shape = shape_of(x)
    axis = node.attr("axis", -1) % len(shape)
    count = node.attr("k") or (node.ints(1) or [0])[0]
    if not 1 <= count <= shape[axis]:
        raise node.error(f"k is {count}; expected 1 to {shape[axis]} for axis {axis} of {shape}")
    index = node.typed(top_k(x, count, axis, bool(node.attr("largest", 1))))
    return [gather_elements(x, index, axis), index]


@converter("CumSum")
def convert_cumulative_sum(node: Node) -> Expr:
    x = node.tensor(0)
    axis = int(np.ravel(node.constant(1))[0]) % len(shape_of(x))
    return cumulative_sum(
        x, axis, bool(node.attr("exclusive", 0)), backwards=bool(node.attr("reverse", 0))
    )


@converter("ArgMax", "ArgMin")
def arg_extremum(node: Node) -> Expr:
    x = node.tensor(0)
    shape = list(shape_of(x))
    axis = node.attr("axis", 0) % len(shape)
    last = bool(node.attr("select_last_index", 0))
    if last:
        x = node.typed(relay.reverse(x, axis))
    index = top_k(x, 1, axis, largest=node.op == "ArgMax")
    if last:
        index = relay.const(shape[axis] - 1, "int64") - index
    return index if node.attr("keepdims", 1) else relay.squeeze(index, [axis])


@converter("OneHot")
def one_hot(node: Node) -> Expr:
    """Off and on where an index, negative ones from the end, is the class; out of range: off."""
    index, (classes,) = node.tensor(0), node.ints(1) or [0]
    rank = len(shape_of(index)) + 1
    axis = node.attr("axis", -1) % rank
    off, on = (relay.const(v, node.dtype(2)) for v in np.ravel(node.constant(2)))
    index = relay.cast(index, "int64")
    size, zero = relay.const(classes, "int64"), relay.const(0, "int64")
    index = relay.expand_dims(relay.where(relay.less(index, zero), index + size, index), axis)
    numbers = np.arange(classes).reshape([-1] + [1] * (rank - axis - 1))
    return relay.where(relay.equal(index, relay.const(numbers, "int64")), on, off)
