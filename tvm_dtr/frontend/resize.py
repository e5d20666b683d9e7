"""Converters of Resize and Upsample.

Every mode of ONNX is linear in the input and separable, so each resized axis is one product with
a matrix, which ONNX's own reference evaluator gives column by column: the interpolation of the
unit vectors. Whole-number nearest upsampling repeats elements instead.
"""

from __future__ import annotations

import numpy as np
import onnx
from onnx.reference import ReferenceEvaluator
from tvm import relay

from ..relay_graph import Expr, dtype_of, infer_local, shape_of
from .node import Node
from .registry import converter

_MODE_ATTRIBUTES = (
    "mode",
    "coordinate_transformation_mode",
    "nearest_mode",
    "cubic_coeff_a",
    "exclude_outside",
)


@converter("Resize")
def resize(node: Node) -> Expr:
    if node.attr("antialias", 0) or node.attr("keep_aspect_ratio_policy", "stretch") != "stretch":
        raise node.error("antialias and keep_aspect_ratio_policy are not supported")
    if node.attr("coordinate_transformation_mode") == "tf_crop_and_resize":
        raise node.error("coordinate transformation tf_crop_and_resize is not supported")
    shape = node.shape(0)
    axes = node.attr("axes") or list(range(len(shape)))
    # Operator set 10 has no region of interest before the scales.
    at = 1 if node.opset == 10 else 2
    scales = node.constant(at) if node.has(at) else None
    sizes = node.ints(3) if node.has(3) else None
    options = {k: node.attr(k) for k in _MODE_ATTRIBUTES if node.attr(k) is not None}
    x = node.tensor(0)
    for i, axis in enumerate(axes):
        if sizes is not None:
            x = _resize_axis(node, x, axis, None, sizes[i], options)
        elif scales is not None and len(np.ravel(scales)):
            x = _resize_axis(node, x, axis, float(np.ravel(scales)[i]), None, options)
    return x


@converter("Upsample")
def upsample(node: Node) -> Expr:
    scales = node.attr("scales") or [float(v) for v in np.ravel(node.constant(1))]
    options = {
        "mode": node.attr("mode", "nearest"),
        "coordinate_transformation_mode": "asymmetric",
        "nearest_mode": "floor",
    }
    x = node.tensor(0)
    for axis, scale in enumerate(scales):
        x = _resize_axis(node, x, axis, scale, None, options)
    return x


def _resize_axis(
    node: Node, x: Expr, axis: int, scale: float | None, size: int | None, options: dict
) -> Expr:
    before = shape_of(x)[axis]
    if (scale == 1.0 or scale is None) and (size == before or size is None):
        return x
    matrix = interpolation_matrix(before, scale, size, options)
    after = matrix.shape[0]
    times = after // before
    if after % before == 0 and np.array_equal(matrix, np.repeat(np.eye(before), times, axis=0)):
        return infer_local(relay.repeat(x, times, axis))
    rank = len(shape_of(x))
    last = [i for i in range(rank) if i != axis] + [axis]
    turned = infer_local(relay.transpose(x, last)) if last != list(range(rank)) else x
    rows = relay.reshape(turned, (-1, before))
    y = relay.nn.dense(rows, relay.const(matrix, dtype_of(x)))
    y = relay.reshape(y, (*shape_of(turned)[:-1], after))
    if last != list(range(rank)):
        y = relay.transpose(y, [last.index(i) for i in range(rank)])
    return infer_local(y)


def interpolation_matrix(
    before: int, scale: float | None, size: int | None, options: dict
) -> np.ndarray:
    """(after, before): Resize of a vector as a matrix."""
    operands = ["x", "", "s", ""] if size is None else ["x", "", "", "s"]
    proto = onnx.helper.make_node("Resize", [o for o in operands], ["y"], **options)
    value = np.array([1.0, scale], "float32") if size is None else np.array([before, size])
    kind = onnx.helper.np_dtype_to_tensor_dtype(value.dtype)
    graph = onnx.helper.make_graph(
        [proto],
        "resize",
        [
            onnx.helper.make_tensor_value_info("x", onnx.TensorProto.DOUBLE, [before, before]),
            onnx.helper.make_tensor_value_info("s", kind, [2]),
        ],
        [onnx.helper.make_tensor_value_info("y", onnx.TensorProto.DOUBLE, None)],
    )
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 19)])
    (rows,) = ReferenceEvaluator(model).run(None, {"x": np.eye(before), "s": value})
    return np.asarray(rows).T
