"""A multilayer perceptron for 28x28 images given as vectors."""

from __future__ import annotations

import onnx

from tvm_dtr.models.layers import LayerStack


def mlp(
    *,
    batch: int | None,
    seed: int,
    features: int = 784,
    width: int = 512,
    hidden_layers: int = 4,
    classes: int = 10,
) -> onnx.ModelProto:
    """``hidden_layers`` dense layers of ``width`` units with ReLU, then the logits."""
    stack = LayerStack(seed)
    x, units = "x", features
    for index in range(1, hidden_layers + 1):
        x = stack.relu(stack.linear(x, f"fc{index}", units, width), f"relu{index}")
        units = width
    logits = stack.linear(x, f"fc{hidden_layers + 1}", units, classes)
    return stack.finish("mlp", logits, input_shape=(features,), batch=batch, classes=classes)
