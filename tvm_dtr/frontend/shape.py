"""Converters of ops that move data."""

from __future__ import annotations

import math

import numpy as np
from tvm import relay

from ..autodiff.scalars import broadcast_shape
from ..autodiff.shape import pieces
from ..relay_graph import Expr, dtype_of, infer_local, shape_of
from .node import Node
from .registry import converter


@converter("Flatten")
def flatten(node: Node) -> Expr:
    shape = node.shape(0)
    axis = node.attr("axis", 1)
    axis = axis + len(shape) if axis < 0 else axis
    return relay.reshape(node.tensor(0), (math.prod(shape[:axis]), math.prod(shape[axis:])))


@converter("Reshape")
def reshape(node: Node) -> Expr:
    shape = node.shape(0)
    target = node.attr("shape") or node.ints(1)
    assert target is not None
    if not node.attr("allowzero", 0):
        target = [shape[i] if n == 0 else n for i, n in enumerate(target)]
    if -1 in target:
        known = math.prod(n for n in target if n != -1)
        target = [math.prod(shape) // max(known, 1) if n == -1 else n for n in target]
    if math.prod(target) != math.prod(shape):
        raise node.error(f"shape {shape} cannot become {tuple(target)}")
    return relay.reshape(node.tensor(0), target)


@converter("Transpose")
def transpose(node: Node) -> Expr:
    return relay.transpose(node.tensor(0), node.attr("perm"))


@converter("Concat")
def concat(node: Node) -> Expr:
    # A part of no elements adds nothing: exporters write one where a list starts out empty.
    filled = [i for i in range(node.operand_count) if 0 not in node.shape(i)]
    if not filled:
        raise node.error("all of its parts are empty")
    parts = [node.tensor(i) for i in filled]
    return relay.concatenate(parts, axis=node.attr("axis", 1)) if len(parts) > 1 else parts[0]


@converter("Squeeze")
def squeeze(node: Node) -> Expr:
    shape = node.shape(0)
    axes = node.attr("axes") or node.ints(1)
    axes = [i for i, n in enumerate(shape) if n == 1] if axes is None else axes
    gone = {a % len(shape) for a in axes}
    if any(shape[a] != 1 for a in gone):
        raise node.error(f"axes {sorted(gone)} of {shape} are not all of size 1")
    return relay.reshape(node.tensor(0), [n for i, n in enumerate(shape) if i not in gone])


@converter("Unsqueeze")
def unsqueeze(node: Node) -> Expr:
    axes = node.attr("axes") or node.ints(1)
    assert axes is not None
    shape = list(node.shape(0))
    rank = len(shape) + len(axes)
    for axis in sorted(a % rank for a in axes):
        shape.insert(axis, 1)
    return relay.reshape(node.tensor(0), shape)


@converter("Pad")
def pad(node: Node) -> Expr:
    x = node.tensor(0)
    rank = len(shape_of(x))
    widths = node.attr("pads") or node.ints(1)
    mode = node.attr("mode", "constant")
    if widths is None or mode not in ("constant", "edge", "reflect", "wrap"):
        raise node.error(f"mode '{mode}' is not supported; expected constant, edge, reflect, wrap")
    axes = node.ints(3) or list(range(rank))
    pairs = [(0, 0)] * rank
    for i, axis in enumerate(axes):
        pairs[axis % rank] = (widths[i], widths[i + len(axes)])
    value = float(node.constant(2, node.attr("value", 0.0)))
    inner = [(max(-a, 0), n - max(-b, 0)) for (a, b), n in zip(pairs, shape_of(x), strict=True)]
    if any(low or high < n for (low, high), n in zip(inner, shape_of(x), strict=True)):
        x = relay.strided_slice(x, [low for low, _ in inner], [high for _, high in inner])
        pairs = [(max(a, 0), max(b, 0)) for a, b in pairs]
    if mode == "constant":
        return relay.nn.pad(x, pairs, pad_value=value)
    return _pad_by_index(node.typed(x), pairs, mode)


def _pad_by_index(x: Expr, pairs: list[tuple[int, int]], mode: str) -> Expr:
    """Edge, reflection and wrapping: each padded axis takes slices of the tensor by index."""
    for axis, (before, after) in enumerate(pairs):
        if before or after:
            index = np.pad(np.arange(shape_of(x)[axis]), (before, after), mode=mode)  # type: ignore[call-overload]
            x = infer_local(relay.take(x, relay.const(index, "int64"), axis=axis, mode="fast"))
    return x


@converter("Expand")
def expand(node: Node) -> Expr:
    shape = broadcast_shape(node.shape(0), tuple(node.ints(1) or ()))
    return relay.broadcast_to(node.tensor(0), shape)


@converter("Tile")
def tile(node: Node) -> Expr:
    return relay.tile(node.tensor(0), node.ints(1))


@converter("Split")
def split(node: Node) -> list[Expr | None]:
    x = node.tensor(0)
    axis = node.attr("axis", 0) % len(shape_of(x))
    size, count = shape_of(x)[axis], len(node.proto.output)
    sizes = node.attr("split") or node.ints(1)
    if sizes is None:
        each = -(-size // node.attr("num_outputs", count))
        sizes = [min(each, size - i * each) for i in range(count)]
    if sum(sizes) != size:
        raise node.error(f"parts {sizes} do not add up to {size} on axis {axis}")
    return list(pieces(x, sizes, axis)) if count > 1 else [x]


@converter("Slice")
def slice_(node: Node) -> Expr:
    shape = node.shape(0)
    starts = node.attr("starts") or node.ints(1)
    ends = node.attr("ends") or node.ints(2)
    assert starts is not None and ends is not None
    axes = node.attr("axes") or node.ints(3) or list(range(len(starts)))
    steps = node.ints(4) or [1] * len(starts)
    x = node.tensor(0)
    begin, end, stride = [0] * len(shape), list(shape), [1] * len(shape)
    for start, stop, axis, step in zip(starts, ends, axes, steps, strict=True):
        taken = range(shape[axis])[slice(start, stop, step)]
        if not len(taken):
            raise node.error(f"axis {axis} of {shape} from {start} to {stop} is empty")
        begin[axis % len(shape)] = taken[0]
        stride[axis % len(shape)] = step
        # An end of -1 would count from the back: what stops before the first element.
        end[axis % len(shape)] = taken[-1] + (1 if step > 0 else -1)
        if end[axis % len(shape)] < 0:
            end[axis % len(shape)] = -shape[axis] - 1
    return relay.strided_slice(x, begin, end, stride)


@converter("Gather")
def gather(node: Node) -> Expr:
    x, shape = node.weight(0), node.shape(0)
    axis = node.attr("axis", 0) % len(shape)
    data = node.known(1)
    if data is not None and data.ndim == 0:
        at = int(data) % shape[axis]
        begin, end = [0] * len(shape), list(shape)
        begin[axis], end[axis] = at, at + 1
        rest = [n for i, n in enumerate(shape) if i != axis]
        return relay.reshape(relay.strided_slice(x, begin, end), rest)
    if data is not None:
        return relay.take(x, relay.const(data % shape[axis], "int64"), axis=axis, mode="fast")
    index = relay.cast(node.tensor(1), "int64")
    zero, size = relay.const(0, "int64"), relay.const(shape[axis], "int64")
    index = relay.where(relay.less(index, zero), index + size, index)
    # Out of range is undefined in ONNX; clipped, it can at least not read foreign memory.
    index = relay.clip(index, 0, shape[axis] - 1)
    return relay.take(x, index, axis=axis, mode="fast")


@converter("DepthToSpace")
def depth_to_space(node: Node) -> Expr:
    n, c, h, w = node.shape(0)
    b = node.attr("blocksize")
    if node.attr("mode", "DCR") == "DCR":
        x = relay.reshape(node.tensor(0), (n, b, b, c // (b * b), h, w))
        x = relay.transpose(x, (0, 3, 4, 1, 5, 2))
    else:
        x = relay.reshape(node.tensor(0), (n, c // (b * b), b, b, h, w))
        x = relay.transpose(x, (0, 1, 4, 2, 5, 3))
    return relay.reshape(x, (n, c // (b * b), h * b, w * b))


@converter("SpaceToDepth")
def space_to_depth(node: Node) -> Expr:
    n, c, h, w = node.shape(0)
    b = node.attr("blocksize")
    x = relay.reshape(node.tensor(0), (n, c, h // b, b, w // b, b))
    return relay.reshape(relay.transpose(x, (0, 3, 5, 1, 2, 4)), (n, c * b * b, h // b, w // b))


@converter("Trilu")
def trilu(node: Node) -> Expr:
    x = node.tensor(0)
    rows, columns = shape_of(x)[-2:]
    shift = int(node.constant(1, 0))
    mask = np.tri(rows, columns, shift - 1 if node.attr("upper", 1) else shift, dtype=bool)
    mask = ~mask if node.attr("upper", 1) else mask
    return relay.where(relay.const(mask, "bool"), x, relay.const(0, dtype_of(x)))
