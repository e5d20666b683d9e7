"""Converters of Resize and Upsample.

Every mode of ONNX is linear in the input and separable, so each resized axis is one product with
a matrix. Whole-number nearest upsampling repeats elements instead.
"""

from __future__ import annotations

import math

import numpy as np
from tvm import relay

from ..relay_graph import Expr, dtype_of, infer_local, shape_of
from .interpolation import Interpolation
from .node import Node
from .registry import converter

POLICIES = {"stretch": None, "not_larger": min, "not_smaller": max}


@converter("Resize")
def resize(node: Node) -> Expr:
    shape, x = node.shape(0), node.tensor(0)
    given = node.attr("axes") or list(range(len(shape)))
    axes = [axis % len(shape) for axis in given]
    kind = _interpolation(node)
    regions = _regions(node, len(axes)) if kind.crops else [(0.0, 1.0)] * len(axes)
    outside = float(node.attr("extrapolation_value", 0.0))
    sizes = _sizes(node, [shape[axis] for axis in axes])
    for axis, (after, scale), region in zip(axes, sizes, regions, strict=True):
        x = _resize_axis(node, x, axis, after, scale, kind, region, outside)
    return x


@converter("Upsample")
def upsample(node: Node) -> Expr:
    scales = node.attr("scales") or [float(v) for v in np.ravel(node.constant(1))]
    kind = Interpolation(node.attr("mode", "nearest"), "asymmetric", "floor")
    x = node.tensor(0)
    for axis, scale in enumerate(scales):
        x = _resize_axis(node, x, axis, int(scale * shape_of(x)[axis]), scale, kind)
    return x


def _interpolation(node: Node) -> Interpolation:
    # Operator set 10 has one transformation, without a name.
    old = node.opset == 10
    return Interpolation(
        mode=node.attr("mode", "nearest"),
        transformation=node.attr(
            "coordinate_transformation_mode", "asymmetric" if old else "half_pixel"
        ),
        nearest=node.attr("nearest_mode", "floor" if old else "round_prefer_floor"),
        cubic_a=float(node.attr("cubic_coeff_a", -0.75)),
        exclude_outside=bool(node.attr("exclude_outside", 0)),
        antialias=bool(node.attr("antialias", 0)),
    )


def _regions(node: Node, count: int) -> list[tuple[float, float]]:
    """What is cropped of each axis."""
    bounds = [float(v) for v in np.ravel(node.constant(1))] if node.has(1) else []
    if len(bounds) != 2 * count:
        raise node.error(f"the region of interest has {len(bounds)} values, expected {2 * count}")
    return list(zip(bounds[:count], bounds[count:], strict=True))


def _sizes(node: Node, before: list[int]) -> list[tuple[int, float]]:
    """Size of each resized axis, and its ratio to the size before, not rounded."""
    # Operator set 10 has no region of interest before the scales.
    at = 1 if node.opset == 10 else 2
    scales = np.ravel(node.constant(at)) if node.has(at) else np.zeros(0)
    if len(scales):
        _check_count(node, "scales", len(scales), len(before))
        return [(int(float(s) * n), float(s)) for s, n in zip(scales, before, strict=True)]
    sizes = node.ints(3) if node.has(3) else None
    if sizes is None:
        raise node.error("neither scales nor sizes are given")
    _check_count(node, "sizes", len(sizes), len(before))
    ratios = [after / n for after, n in zip(sizes, before, strict=True)]
    policy = node.attr("keep_aspect_ratio_policy", "stretch")
    if policy not in POLICIES:
        raise node.error(
            f"keep_aspect_ratio_policy is '{policy}', expected one of {', '.join(POLICIES)}"
        )
    choose = POLICIES[policy]
    if choose is None:
        return list(zip(sizes, ratios, strict=True))
    ratio = choose(ratios)
    return [(math.floor(ratio * n + 0.5), ratio) for n in before]


def _check_count(node: Node, what: str, count: int, expected: int) -> None:
    if count != expected:
        raise node.error(f"{count} {what} for {expected} axes")


def _resize_axis(
    node: Node,
    x: Expr,
    axis: int,
    after: int,
    scale: float,
    kind: Interpolation,
    region: tuple[float, float] = (0.0, 1.0),
    extrapolated: float = 0.0,
) -> Expr:
    before = shape_of(x)[axis]
    if scale == 1.0 and after == before and region == (0.0, 1.0):
        return x
    if after < 1:
        raise node.error(f"axis {axis} of {shape_of(x)} would have {after} elements")
    try:
        matrix, outside = kind.weights(before, after, scale, region)
    except ValueError as error:
        raise node.error(str(error)) from None
    times = after // before
    if after % before == 0 and np.array_equal(matrix, np.repeat(np.eye(before), times, axis=0)):
        return infer_local(relay.repeat(x, times, axis))
    y = _times_matrix(x, axis, matrix)
    if outside.any() and extrapolated:
        rank = len(shape_of(x))
        value = np.where(outside, extrapolated, 0).reshape([-1] + [1] * (rank - 1 - axis))
        y = infer_local(y + relay.const(value, dtype_of(x)))
    return y


def _times_matrix(x: Expr, axis: int, matrix: np.ndarray) -> Expr:
    after, before = matrix.shape
    rank = len(shape_of(x))
    last = [i for i in range(rank) if i != axis] + [axis]
    turned = infer_local(relay.transpose(x, last)) if last != list(range(rank)) else x
    rows = relay.reshape(turned, (-1, before))
    y = relay.nn.dense(rows, relay.const(matrix, dtype_of(x)))
    y = relay.reshape(y, (*shape_of(turned)[:-1], after))
    if last != list(range(rank)):
        y = relay.transpose(y, [last.index(i) for i in range(rank)])
    return infer_local(y)
