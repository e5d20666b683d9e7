"""A generative adversarial network through whose inner optimization the gradient goes
(Metz et al., ICLR 2017: Unrolled Generative Adversarial Networks)."""

from __future__ import annotations

import numpy as np
import onnx

from tvm_dtr.models.bodies import INT64, Body, finish, value
from tvm_dtr.models.layers import LayerStack


def unrolled_gan(
    *,
    batch: int | None,
    seed: int,
    noise: int = 32,
    width: int = 128,
    features: int = 64,
    rate: float = 0.1,
) -> onnx.ModelProto:
    """The generator's loss after ``inner`` steps of gradient descent of the discriminator.

    Inputs: ``z`` (N, noise), ``real`` (N, features) and ``inner`` (int64). Outputs: ``loss``, for
    build(loss="output", freeze=["disc.*"]), and the discriminator's weights after the inner steps.
    """
    if batch is None:
        raise ValueError("the batch must be a number: the inner steps are what varies")
    stack = LayerStack(seed)
    hidden = stack.node("Tanh", "gen.tanh", [stack.linear("z", "gen.fc1", noise, width)])
    fake = stack.linear(hidden, "gen.fc2", width, features)
    first = stack.embedding("disc.weight1", (features, width), features**-0.5)
    second = stack.embedding("disc.weight2", (width, 1), width**-0.5)
    body = Body(stack)
    step = body.constant("inner.rate", rate / batch)
    real = _gradients(body, "inner.real", "real", "w1", "w2", real=True)
    made = _gradients(body, "inner.fake", fake, "w1", "w2", real=False)
    new = []
    for index in range(2):
        total = body.add(real[index], made[index], f"inner.gradient{index + 1}")
        change = body.node("Mul", f"inner.change{index + 1}", [total, step])
        new.append(body.node("Sub", f"inner.new{index + 1}", [f"w{index + 1}", change]))
    shapes = [[features, width], [width, 1]]
    states = [value(f"w{i + 1}", shape) for i, shape in enumerate(shapes)]
    results = [value(name, shape) for name, shape in zip(new, shapes, strict=True)]
    graph = body.loop_graph("inner.loop", states, results)
    trained = stack.nodes("Loop", "inner.loop", ["inner", "", first, second], 2, body=graph)
    logits = _logits(stack, "outer", fake, *trained)[1]
    losses = stack.node("Softplus", "outer.losses", [stack.node("Neg", "outer.minus", [logits])])
    stack.node("ReduceMean", "outer.loss", [losses], keepdims=0)
    stack._nodes[-1].output[0] = "loss"
    inputs = [value("z", [batch, noise]), value("real", [batch, features])]
    inputs.append(value("inner", [], INT64))
    outputs = [value("loss", [])]
    outputs += [value(name, shape) for name, shape in zip(trained, shapes, strict=True)]
    assert np.isfinite(rate)
    return finish(stack, "unrolled-gan", inputs, outputs)


def _logits(layers: LayerStack, name: str, x: str, w1: str, w2: str) -> tuple[str, str]:
    """The discriminator's hidden layer and logits."""
    product = layers.node("MatMul", f"{name}.product", [x, w1])
    hidden = layers.node("Tanh", f"{name}.hidden", [product])
    return hidden, layers.node("MatMul", f"{name}.logits", [hidden, w2])


def _gradients(body: Body, name: str, x: str, w1: str, w2: str, *, real: bool) -> tuple[str, str]:
    """Of the sum of softplus(-logits) for real, softplus(logits) for made-up rows."""
    hidden, logits = _logits(body, name, x, w1, w2)
    if real:
        minus = body.node("Neg", f"{name}.minus", [logits])
        chance = body.node("Sigmoid", f"{name}.chance", [minus])
        slope = body.node("Neg", f"{name}.slope", [chance])
    else:
        slope = body.node("Sigmoid", f"{name}.slope", [logits])
    of_w2 = _transposed_product(body, f"{name}.of_w2", hidden, slope)
    back = body.node("Transpose", f"{name}.w2t", [w2], perm=[1, 0])
    of_hidden = body.node("MatMul", f"{name}.of_hidden", [slope, back])
    square = body.node("Mul", f"{name}.square", [hidden, hidden])
    rest = body.node("Sub", f"{name}.rest", [body.constant(f"{name}.one", 1.0), square])
    inner = body.node("Mul", f"{name}.inner", [of_hidden, rest])
    return _transposed_product(body, f"{name}.of_w1", x, inner), of_w2


def _transposed_product(body: Body, name: str, x: str, y: str) -> str:
    return body.node("MatMul", name, [body.node("Transpose", f"{name}.t", [x], perm=[1, 0]), y])
