"""A model in another floating-point type."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import AttributeProto, GraphProto, NodeProto, TensorProto, numpy_helper

from ..errors import ModelError, UsageError

FLOATS = {
    "float16": TensorProto.FLOAT16,
    "float32": TensorProto.FLOAT,
    "float64": TensorProto.DOUBLE,
}
_KNOWN = {
    *FLOATS.values(),
    *(TensorProto.INT8, TensorProto.INT16, TensorProto.INT32, TensorProto.INT64),
    *(TensorProto.UINT8, TensorProto.UINT16, TensorProto.UINT32, TensorProto.UINT64),
    TensorProto.BOOL,
}
_CAST = {*FLOATS.values(), TensorProto.BFLOAT16}


def check_dtype(dtype: object) -> None:
    """Raises UsageError if ``dtype`` is no type that a model can be cast to."""
    if dtype is not None and dtype not in FLOATS:
        raise UsageError(f"dtype is {dtype!r}; expected one of {', '.join(FLOATS)}, or None")


def cast_model(model: onnx.ModelProto, dtype: str) -> onnx.ModelProto:
    """A copy of the model whose floating-point inputs, weights and constants are ``dtype``.

    Casts inside of the graph to a floating-point type become casts to ``dtype``; integers stay.
    """
    new = onnx.ModelProto()
    new.CopyFrom(model)
    for function in new.functions:
        _cast_nodes(function.node, dtype)
    _cast_graph(new.graph, dtype)
    return new


def check_types(model: onnx.ModelProto) -> None:
    """Raises ModelError for inputs and weights of a type for which there are no kernels."""
    _check_dense(model.graph)
    inputs = [i for i in model.graph.input if i.type.HasField("tensor_type")]
    types = {i.name: i.type.tensor_type.elem_type for i in inputs}
    types |= {t.name: t.data_type for t in model.graph.initializer}
    for name, kind in types.items():
        if kind == TensorProto.BFLOAT16:
            raise ModelError(
                f"tensor '{name}' is bfloat16, which no kernel here computes with; cast the "
                "model: dtype='float32' or --dtype float32 (and --mixed-precision bfloat16 for "
                "activations of half the size)"
            )
        if kind not in _KNOWN:
            raise ModelError(f"tensor '{name}': {unknown_type(kind)}")


def _check_dense(graph: GraphProto) -> None:
    sparse = [tensor.values.name for tensor in graph.sparse_initializer]
    for node in graph.node:
        if any(a.HasField("sparse_tensor") for a in node.attribute):
            sparse += list(node.output)[:1]
    if sparse:
        raise ModelError(
            f"tensor '{sparse[0]}' is stored sparse, which is not supported; store it dense "
            "(an initializer, or a Constant with 'value')"
        )


def unknown_type(kind: int) -> str:
    """What is wrong with an ONNX element type; empty if nothing is."""
    if kind in _KNOWN:
        return ""
    known = TensorProto.DataType.values()
    name = TensorProto.DataType.Name(kind) if kind in known else f"number {kind}"
    return f"type {name.lower()} is not supported; expected float16 to float64, integers or bool"


def _cast_graph(graph: GraphProto, dtype: str) -> None:
    for info in [*graph.input, *graph.output, *graph.value_info]:
        if info.type.tensor_type.elem_type in _CAST:
            info.type.tensor_type.elem_type = FLOATS[dtype]
    for tensor in graph.initializer:
        _cast_tensor(tensor, dtype)
    _cast_nodes(graph.node, dtype)


def _cast_nodes(nodes: list[NodeProto], dtype: str) -> None:
    for node in nodes:
        for attribute in node.attribute:
            if attribute.type == AttributeProto.TENSOR:
                _cast_tensor(attribute.t, dtype)
            elif attribute.type == AttributeProto.GRAPH:
                _cast_graph(attribute.g, dtype)
            elif attribute.name in ("to", "dtype", "stash_type") and attribute.i in _CAST:
                attribute.i = FLOATS[dtype]


def _cast_tensor(tensor: TensorProto, dtype: str) -> None:
    if tensor.data_type not in _CAST or tensor.data_type == FLOATS[dtype]:
        return
    data = np.asarray(numpy_helper.to_array(tensor))
    if tensor.data_type == TensorProto.BFLOAT16:
        data = _from_bfloat16(data)
    data = data.astype(dtype)
    tensor.CopyFrom(numpy_helper.from_array(data, tensor.name))


def _from_bfloat16(data: np.ndarray) -> np.ndarray:
    """float32 values of what onnx reads as 16 bits, or already as numbers."""
    if data.dtype.itemsize != 2:
        return data
    bits = np.frombuffer(data.tobytes(), "uint16").astype("uint32") << 16
    return bits.view("float32").reshape(data.shape)
