"""The original ONNX graph with other weights: what a program keeps of its model, and gives back.

A program keeps the graph without the values of what it trains (``strip_weights``), for those are in
its state. ``trained_model`` puts a state back, under the names that the tensors had, and makes of
what trains (batch normalization, dropout) what infers.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

import numpy as np
import onnx
from onnx import helper, numpy_helper

from .errors import ModelError

_DATA_FIELDS = (
    "raw_data",
    "float_data",
    "int32_data",
    "string_data",
    "int64_data",
    "double_data",
    "uint64_data",
    "external_data",
    "data_location",
)
_RUNNING = {1: 3, 2: 4}  # BatchNormalization: output of the new statistic -> input of the old one


@dataclass(frozen=True)
class ModelSource:
    """What a program was built from: the ONNX graph without the weights, serialized, the loss, the
    shapes and the dtype given when building."""

    graph: bytes
    loss: str
    shapes: dict[str, tuple[int | str, ...]] = field(default_factory=dict)
    dtype: str | None = None


def strip_weights(model: onnx.ModelProto, names: Collection[str]) -> bytes:
    """The serialized model, its initializers called ``names`` without their values."""
    bare = onnx.ModelProto()
    bare.CopyFrom(model)
    for tensor in bare.graph.initializer:
        if tensor.name in names:
            for name in _DATA_FIELDS:
                tensor.ClearField(name)
    return bare.SerializeToString(deterministic=True)


def with_weights(graph: bytes, values: Mapping[str, np.ndarray]) -> onnx.ModelProto:
    """The model of ``strip_weights`` with the values of these tensors.

    A tensor that a node made of constants (a weight in a Constant node, a copy by Identity) becomes
    an initializer in its place, under its name.
    """
    model = onnx.load_model_from_string(graph)
    left = dict(values)
    for tensor in model.graph.initializer:
        if tensor.name in left:
            value = _plain(left.pop(tensor.name))
            dtype = helper.tensor_dtype_to_np_dtype(tensor.data_type)  # before --dtype
            tensor.CopyFrom(numpy_helper.from_array(value.astype(dtype), tensor.name))
    made = {name: node for node in model.graph.node for name in node.output}
    for name, value in left.items():
        if name in made and list(made[name].output) == [name]:
            model.graph.node.remove(made[name])
            model.graph.initializer.append(numpy_helper.from_array(_plain(value), name))
    missing = [t.name for t in model.graph.initializer if _empty(t)]
    if missing:
        raise ModelError(f"no value for the tensor '{missing[0]}' of the model")
    return model


def trained_model(graph: bytes, values: Mapping[str, np.ndarray]) -> onnx.ModelProto:
    """The model with these weights and running statistics, for inference.

    Names stay. Batch normalization takes the running statistics, dropout passes its input on.
    Values of tensors that the graph has not (optimizer state) are left out. Raises ModelError where
    a weight is missing.
    """
    model = with_weights(graph, values)
    nodes = []
    for node in model.graph.node:
        nodes += _for_inference(node)
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    _drop_unused(model.graph)
    return model


def _for_inference(node: onnx.NodeProto) -> list[onnx.NodeProto]:
    if node.op_type == "Dropout":
        del node.input[2:]
        return [node]
    if node.op_type != "BatchNormalization":
        return [node]
    copies = []
    for output, operand in _RUNNING.items():
        if output < len(node.output) and node.output[output]:
            copies.append(
                helper.make_node("Identity", [node.input[operand]], [node.output[output]])
            )
    del node.output[1:]
    kept = [a for a in node.attribute if a.name != "training_mode"]
    del node.attribute[:]
    node.attribute.extend(kept)
    return [node, *copies]


def _drop_unused(graph: onnx.GraphProto) -> None:
    """Copies that nobody reads, and initializers such as dropout's training flag."""
    used = {name for node in graph.node for name in node.input}
    used |= {output.name for output in graph.output} | {i.name for i in graph.input}
    used |= _used_inside(graph)
    for node in list(graph.node):
        if node.op_type == "Identity" and not node.name and node.output[0] not in used:
            graph.node.remove(node)
    for tensor in list(graph.initializer):
        if tensor.name not in used:
            graph.initializer.remove(tensor)


def _used_inside(graph: onnx.GraphProto) -> set[str]:
    """Names that the bodies of loops and branches read."""
    used: set[str] = set()
    for node in graph.node:
        for attribute in node.attribute:
            for body in [attribute.g, *attribute.graphs]:
                used |= {name for inner in body.node for name in inner.input} | _used_inside(body)
    return used


def _plain(value: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(value).reshape(np.shape(value))


def _empty(tensor: onnx.TensorProto) -> bool:
    elements = int(np.prod(tensor.dims)) if tensor.dims else 1
    given = any(len(getattr(tensor, name)) for name in _DATA_FIELDS[:-1])
    return elements > 0 and not given
