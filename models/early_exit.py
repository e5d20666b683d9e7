"""A network that stops early where it is sure (BranchyNet: Teerapittayanon et al., 2016)."""

from __future__ import annotations

import numpy as np
import onnx

from tvm_dtr.models.bodies import Body, finish, value
from tvm_dtr.models.layers import LayerStack


def early_exit(
    *,
    batch: int | None,
    seed: int,
    features: int = 784,
    width: int = 256,
    classes: int = 10,
    layers: int = 4,
    sure: float = 0.35,
) -> onnx.ModelProto:
    """An MLP with an exit behind its first layer: the batch takes it if the mean of the largest
    probability of its rows is above ``sure``, else it goes through ``layers`` more."""
    if batch is None:
        raise ValueError("the batch must be a number")
    stack = LayerStack(seed)
    hidden = stack.relu(stack.linear("x", "fc1", features, width), "relu1")
    logits = stack.linear(hidden, "exit", width, classes)
    chance = stack.node("Softmax", "exit.chance", [logits], axis=1)
    best = stack.node("ReduceMax", "exit.best", [chance], axes=[1], keepdims=0)
    mean = stack.node("ReduceMean", "exit.mean", [best], axes=[0], keepdims=0)
    stops = stack.node("Greater", "exit.stops", [mean, stack.constant("exit.sure", sure)])
    size = [batch, classes]
    stop = Body(stack)
    stop.node("Identity", "early", [logits])
    then = stop.graph("exit.taken", [], [value("early.out", size)])
    further, deep = Body(stack), hidden
    for index in range(layers):
        layer = further.linear(deep, f"deep{index}", width, width)
        deep = further.relu(layer, f"deep{index}.relu")
    late = further.linear(deep, "fc", width, classes)
    other = further.graph("exit.passed", [], [value(late, size)])
    stack.node("If", "exit.if", [stops], then_branch=then, else_branch=other)
    stack._nodes[-1].output[0] = "logits"
    assert np.isfinite(sure)
    return finish(stack, "early-exit", [value("x", [batch, features])], [value("logits", size)])
