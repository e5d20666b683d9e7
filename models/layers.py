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
        return self.node(
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
            self.parameter(f"{name}.weight", np.ones(channels)),
            self.parameter(f"{name}.bias", np.zeros(channels)),
            self.parameter(f"{name}.running_mean", np.zeros(channels)),
            self.parameter(f"{name}.running_var", np.ones(channels)),
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
        bias = self.parameter(f"{name}.bias", np.zeros(features_out))
        return self.node("Gemm", name, [x, weight, bias], transB=1)

    def matmul(
        self, x: str, name: str, features_in: int, features_out: int, *, scale: float | None = None
    ) -> str:
        """x W + b over the last axis, the weight in (in, out) order.

        scale: standard deviation of the weights, by default that of the class.
        """
        shape = (features_in, features_out)
        scale = math.sqrt(2 / features_in) if scale is None else scale
        weight = self.parameter(f"{name}.weight", self._normal(shape) * scale)
        bias = self.parameter(f"{name}.bias", np.zeros(features_out))
        return self.node("Add", name, [self.node("MatMul", f"{name}.product", [x, weight]), bias])

    def conv_transpose(self, x: str, name: str, channels_in: int, channels_out: int) -> str:
        """A transposed convolution without bias that doubles the size: 2x2 at stride 2."""
        # An output pixel sums over the input channels alone: each is covered by one window.
        values = self._normal((channels_in, channels_out, 2, 2)) * math.sqrt(2 / channels_in)
        weight = self.parameter(f"{name}.weight", values)
        return self.node(
            "ConvTranspose", name, [x, weight], kernel_shape=[2, 2], strides=[2, 2], pads=[0] * 4
        )

    def layer_norm(self, x: str, name: str, features: int) -> str:
        """LayerNormalization over the last axis."""
        scale = self.parameter(f"{name}.weight", np.ones(features))
        bias = self.parameter(f"{name}.bias", np.zeros(features))
        return self.node("LayerNormalization", name, [x, scale, bias], axis=-1, epsilon=EPSILON)

    def gelu(self, x: str, name: str) -> str:
        """x times the normal distribution function of x (Hendrycks and Gimpel, 2016)."""
        scaled = self.node("Mul", f"{name}.scaled", [x, self.constant(f"{name}.c", 0.5**0.5)])
        erf = self.node("Erf", f"{name}.erf", [scaled])
        shifted = self.node("Add", f"{name}.shifted", [erf, self.constant(f"{name}.one", 1.0)])
        half = self.node("Mul", f"{name}.half", [x, self.constant(f"{name}.h", 0.5)])
        return self.node("Mul", name, [half, shifted])

    def relu(self, x: str, name: str) -> str:
        return self.node("Relu", name, [x])

    def add(self, x: str, y: str, name: str) -> str:
        return self.node("Add", name, [x, y])

    def concat(self, xs: Sequence[str], name: str, axis: int = 1) -> str:
        return self.node("Concat", name, list(xs), axis=axis)

    def max_pool(self, x: str, name: str, *, kernel: int = 2, pad: int = 0) -> str:
        """Maxima of kernel x kernel windows at stride 2."""
        size = [kernel, kernel]
        return self.node("MaxPool", name, [x], kernel_shape=size, strides=[2, 2], pads=[pad] * 4)

    def average_pool(self, x: str, name: str) -> str:
        """2x2 means at stride 2."""
        return self.node("AveragePool", name, [x], kernel_shape=[2, 2], strides=[2, 2])

    def global_average_pool(self, x: str, name: str) -> str:
        return self.node("GlobalAveragePool", name, [x])

    def flatten(self, x: str, name: str) -> str:
        return self.node("Flatten", name, [x], axis=1)

    def finish(
        self,
        name: str,
        logits: str,
        *,
        input_shape: Sequence[int],
        batch: int | None,
        classes: int,
        positions: Sequence[int] = (),
        input_type: int = TensorProto.FLOAT,
    ) -> onnx.ModelProto:
        """The checked model: input ``x``, output ``logits``; batch ``None`` stays symbolic.

        positions: axes after the classes, where each position of an example has its own label.
        """
        self._nodes[-1].output[0] = "logits"
        assert logits == f"{self._nodes[-1].name}.out", "the logits come from the last layer"
        rows = "batch" if batch is None else batch
        graph = helper.make_graph(
            self._nodes,
            name,
            [helper.make_tensor_value_info("x", input_type, [rows, *input_shape])],
            [
                helper.make_tensor_value_info(
                    "logits", TensorProto.FLOAT, [rows, classes, *positions]
                )
            ],
            initializer=self._initializers,
        )
        opset = helper.make_operatorsetid("", OPSET)
        model = helper.make_model(graph, opset_imports=[opset], producer_name="tvm-dtr models")
        model.ir_version = IR_VERSION
        onnx.checker.check_model(model)
        return model

    def node(self, op: str, name: str, inputs: list[str], **attributes: Any) -> str:
        """A node of one output."""
        return self.nodes(op, name, inputs, 1, **attributes)[0]

    def nodes(
        self, op: str, name: str, inputs: list[str], count: int, **attributes: Any
    ) -> list[str]:
        """A node of ``count`` outputs."""
        outputs = [f"{name}.out"] if count == 1 else [f"{name}.out{i}" for i in range(count)]
        self._nodes.append(helper.make_node(op, inputs, outputs, name=name, **attributes))
        return outputs

    def constant(self, name: str, value: Any) -> str:
        """A number or array that is not trained: floats become float32."""
        array = np.asarray(value)
        array = array.astype(np.float32) if array.dtype.kind == "f" else array
        return self.node("Constant", name, [], value=numpy_helper.from_array(array, name))

    def embedding(self, name: str, shape: tuple[int, ...], scale: float) -> str:
        """A trained table of normal numbers of standard deviation ``scale``."""
        return self.parameter(name, self._normal(shape) * scale)

    def _weight(self, name: str, shape: tuple[int, ...]) -> str:
        fan_in = math.prod(shape[1:])
        return self.parameter(name, self._normal(shape) * math.sqrt(2 / fan_in))

    def _normal(self, shape: tuple[int, ...]) -> np.ndarray:
        return self._random.standard_normal(shape, dtype=np.float32)

    def parameter(self, name: str, values: np.ndarray) -> str:
        """A trained tensor, or one that the step updates, as float32."""
        tensor = numpy_helper.from_array(np.asarray(values, dtype=np.float32), name)
        self._initializers.append(tensor)
        return name
