"""Converters of ops that move data."""

from __future__ import annotations

import math

from tvm import relay

from ..relay_graph import Expr, shape_of
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
    parts = [node.tensor(i) for i in range(node.operand_count)]
    return relay.concatenate(parts, axis=node.attr("axis", 1))


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
    if widths is None or mode not in ("constant", "edge", "reflect"):
        raise node.error(f"mode '{mode}' is not supported; expected constant, edge, reflect")
    axes = node.ints(3) or list(range(rank))
    pairs = [(0, 0)] * rank
    for i, axis in enumerate(axes):
        pairs[axis % rank] = (widths[i], widths[i + len(axes)])
    value = float(node.constant(2, node.attr("value", 0.0)))
    return relay.nn.pad(x, pairs, pad_value=value, pad_mode=mode)
