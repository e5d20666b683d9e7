"""The layers that the models are made of, as ONNX nodes with named parameters."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

OPSET = 17
IR_VERSION = 8  # the one that came with opset 17, so that older readers take the file
EPSILON = 1e-5
MOMENTUM = 0.9  # ONNX: running = running * momentum + batch * (1 - momentum)


class LayerStack:
    """Collects nodes and initializers; every method adds a layer and returns its output's name.

    A layer called ``layer1.0.conv1`` makes a node of that name, an output value
    ``layer1.0.conv1.out`` and parameters ``layer1.0.conv1.weight`` (and ``.bias``). Weights are
    drawn from a normal distribution of variance 2 / fan_in (He et al., ICCV 2015, section 2.2),
    in the order of the layers, from one generator seeded with ``seed``.
    """

    def __init__(self, seed: int) -> None:
        self._random = np.random.default_rng(seed)
        self._nodes: list[onnx.NodeProto] = []
        self._initializers: list[onnx.TensorProto] = []

    def conv(
        self,
        x: str,
        name: str,
        channels_in: int,
        channels_out: int,
        *,
        kernel: int = 3,
        stride: int = 1,
        groups: int = 1,
    ) -> str:
        """A convolution without bias (a normalization follows), padded to keep size / stride."""
        shape = (channels_out, channels_in // groups, kernel, kernel)
        weight = self._weight(f"{name}.weight", shape)
        return self._node(
            "Conv",
            name,
            [x, weight],
            kernel_shape=[kernel, kernel],
            strides=[stride, stride],
            pads=[kernel // 2] * 4,
            group=groups,
        )

    def batch_norm(self, x: str, name: str, channels: int) -> str:
        """BatchNormalization in training mode: batch statistics, running ones updated."""
        inputs = [
            x,
            self._initializer(f"{name}.weight", np.ones(channels)),
            self._initializer(f"{name}.bias", np.zeros(channels)),
            self._initializer(f"{name}.running_mean", np.zeros(channels)),
            self._initializer(f"{name}.running_var", np.ones(channels)),
        ]
        outputs = [f"{name}.out", f"{name}.next_running_mean", f"{name}.next_running_var"]
        node = helper.make_node(
            "BatchNormalization",
            inputs,
            outputs,
            name=name,
            epsilon=EPSILON,
            momentum=MOMENTUM,
            training_mode=1,
        )
        self._nodes.append(node)
        return outputs[0]

    def linear(self, x: str, name: str, features_in: int, features_out: int) -> str:
        """x W^T + b, the weight in (out, in) order."""
        weight = self._weight(f"{name}.weight", (features_out, features_in))
        bias = self._initializer(f"{name}.bias", np.zeros(features_out))
        return self._node("Gemm", name, [x, weight, bias], transB=1)

    def relu(self, x: str, name: str) -> str:
        return self._node("Relu", name, [x])

    def add(self, x: str, y: str, name: str) -> str:
        return self._node("Add", name, [x, y])

    def max_pool(self, x: str, name: str) -> str:
        """2x2 maxima at stride 2."""
        return self._node("MaxPool", name, [x], kernel_shape=[2, 2], strides=[2, 2])

    def global_average_pool(self, x: str, name: str) -> str:
        return self._node("GlobalAveragePool", name, [x])

    def flatten(self, x: str, name: str) -> str:
        return self._node("Flatten", name, [x], axis=1)

    def finish(
        self,
        name: str,
        logits: str,
        *,
        input_shape: Sequence[int],
        batch: int | None,
        classes: int,
    ) -> onnx.ModelProto:
        """The checked model: input ``x``, output ``logits``; batch ``None`` stays symbolic."""
        self._nodes[-1].output[0] = "logits"
        assert logits == f"{self._nodes[-1].name}.out", "the logits come from the last layer"
        rows = "batch" if batch is None else batch
        graph = helper.make_graph(
            self._nodes,
            name,
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, [rows, *input_shape])],
            [helper.make_tensor_value_info("logits", TensorProto.FLOAT, [rows, classes])],
            initializer=self._initializers,
        )
        opset = helper.make_operatorsetid("", OPSET)
        model = helper.make_model(graph, opset_imports=[opset], producer_name="tvm-dtr models")
        model.ir_version = IR_VERSION
        onnx.checker.check_model(model)
        return model

    def _node(self, op: str, name: str, inputs: list[str], **attributes: Any) -> str:
        output = f"{name}.out"
        self._nodes.append(helper.make_node(op, inputs, [output], name=name, **attributes))
        return output

    def _weight(self, name: str, shape: tuple[int, ...]) -> str:
        fan_in = math.prod(shape[1:])
        values = self._random.standard_normal(shape, dtype=np.float32) * math.sqrt(2 / fan_in)
        return self._initializer(name, values)

    def _initializer(self, name: str, values: np.ndarray) -> str:
        tensor = numpy_helper.from_array(np.asarray(values, dtype=np.float32), name)
        self._initializers.append(tensor)
        return name
