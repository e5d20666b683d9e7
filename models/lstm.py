"""A long short-term memory network, unrolled (Hochreiter and Schmidhuber, 1997)."""

from __future__ import annotations

import numpy as np
import onnx

from tvm_dtr.models.layers import LayerStack


def lstm(
    *,
    batch: int | None,
    seed: int,
    steps: int = 28,
    features: int = 28,
    width: int = 128,
    layers: int = 1,
    classes: int = 10,
) -> onnx.ModelProto:
    """Reads ``steps`` vectors of ``features`` numbers, such as the rows of an image; then logits.

    Gates in the order input, forget, cell, output, as two products and a bias.
    """
    stack = LayerStack(seed)
    parts = stack.nodes("Split", "rows", ["x"], steps, axis=1)
    axis = stack.constant("time_axis", np.array([1]))
    xs = [stack.node("Squeeze", f"row{i}", [part, axis]) for i, part in enumerate(parts)]
    for layer in range(1, layers + 1):
        xs = _layer(stack, xs, f"lstm{layer}", features if layer == 1 else width, width)
    logits = stack.linear(xs[-1], "fc", width, classes)
    return stack.finish("lstm", logits, input_shape=(steps, features), batch=batch, classes=classes)


def _layer(stack: LayerStack, xs: list[str], name: str, features: int, width: int) -> list[str]:
    """The hidden state after each step. Both start as zeros, whose products are left out."""
    scale = (1 / width) ** 0.5
    from_x = stack.embedding(f"{name}.weight_x", (features, 4 * width), scale)
    from_h = stack.embedding(f"{name}.weight_h", (width, 4 * width), scale)
    bias = stack.parameter(f"{name}.bias", np.zeros(4 * width))
    hidden: list[str] = []
    cell = ""
    for step, x in enumerate(xs):
        at = f"{name}.step{step}"
        gates = stack.add(stack.node("MatMul", f"{at}.from_x", [x, from_x]), bias, f"{at}.biased")
        if hidden:
            recurrent = stack.node("MatMul", f"{at}.from_h", [hidden[-1], from_h])
            gates = stack.add(gates, recurrent, f"{at}.gates")
        i, f, g, o = stack.nodes("Split", f"{at}.split", [gates], 4, axis=1)
        i = stack.node("Sigmoid", f"{at}.input", [i])
        new = stack.node("Mul", f"{at}.new", [i, stack.node("Tanh", f"{at}.candidate", [g])])
        if cell:
            kept = stack.node(
                "Mul", f"{at}.kept", [cell, stack.node("Sigmoid", f"{at}.forget", [f])]
            )
            new = stack.add(kept, new, f"{at}.cell")
        cell = new
        o = stack.node("Sigmoid", f"{at}.output", [o])
        hidden.append(
            stack.node("Mul", f"{at}.hidden", [o, stack.node("Tanh", f"{at}.tanh", [cell])])
        )
    return hidden
