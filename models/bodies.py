"""Bodies of loops and branches, written with the layers of the model around them."""

from __future__ import annotations

from collections.abc import Sequence

import onnx
from onnx import TensorProto, helper

from tvm_dtr.models.layers import IR_VERSION, OPSET, LayerStack

FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
# Model metadata that the importer reads: names of axes whose sizes change from step to step.
DOMAIN = "tvm_dtr"
VARYING = "tvm_dtr.varying"
Shape = Sequence[int | str]


def value(name: str, shape: Shape, kind: int = FLOAT) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, list(shape))


class Body(LayerStack):
    """A graph inside of ``outer``: weights made here are the model's, named as if made outside."""

    def __init__(self, outer: LayerStack) -> None:
        self._random = outer._random
        self._initializers = outer._initializers
        self._nodes: list[onnx.NodeProto] = []

    def graph(
        self,
        name: str,
        inputs: Sequence[onnx.ValueInfoProto],
        outputs: Sequence[onnx.ValueInfoProto],
    ) -> onnx.GraphProto:
        return helper.make_graph(self._nodes, name, list(inputs), list(outputs))

    def loop_graph(
        self,
        name: str,
        states: Sequence[onnx.ValueInfoProto],
        results: Sequence[onnx.ValueInfoProto],
        again: str | None = None,
    ) -> onnx.GraphProto:
        """The body of a Loop, whose iteration is called ``NAME.i``; ``again``: its condition."""
        if again is None:
            again = self.node("Identity", f"{name}.again", [f"{name}.go_on"])
        head = [value(f"{name}.i", [], INT64), value(f"{name}.go_on", [], BOOL)]
        return self.graph(name, [*head, *states], [value(again, [], BOOL), *results])


def finish(
    stack: LayerStack,
    name: str,
    inputs: Sequence[onnx.ValueInfoProto],
    outputs: Sequence[onnx.ValueInfoProto],
    varying: Sequence[str] = (),
    own: bool = False,
) -> onnx.ModelProto:
    """The checked model; ``varying`` are names of axes whose sizes change from step to step;
    ``own``: it has ops of this project."""
    graph = helper.make_graph(
        stack._nodes, name, list(inputs), list(outputs), initializer=stack._initializers
    )
    opsets = [helper.make_operatorsetid("", OPSET)]
    if own:
        opsets.append(helper.make_operatorsetid(DOMAIN, 1))
    model = helper.make_model(graph, opset_imports=opsets, producer_name="tvm-dtr models")
    model.ir_version = IR_VERSION
    if varying:
        helper.set_model_props(model, {VARYING: ",".join(varying)})
    onnx.checker.check_model(model)
    return model


def last_is(stack: LayerStack, name: str) -> str:
    """Renames the output of the last layer."""
    stack._nodes[-1].output[0] = name
    return name
