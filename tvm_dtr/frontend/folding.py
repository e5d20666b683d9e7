"""Nodes of constants alone, computed when a model is imported."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx
from onnx.reference import ReferenceEvaluator


def evaluate(
    proto: onnx.NodeProto, operands: Mapping[str, np.ndarray | None], opset: int
) -> list[np.ndarray]:
    """The results of one node on these operands, by ONNX's reference."""
    infos = [
        onnx.helper.make_tensor_value_info(
            name, onnx.helper.np_dtype_to_tensor_dtype(np.asarray(data).dtype), None
        )
        for name, data in operands.items()
    ]
    results = [onnx.ValueInfoProto(name=name) for name in proto.output if name]
    graph = onnx.helper.make_graph([proto], "fold", infos, results)
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", opset)])
    return [np.asarray(r) for r in ReferenceEvaluator(model).run(None, dict(operands))]
