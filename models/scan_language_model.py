"""A small recurrent language model: one Scan over the positions of a text."""

from __future__ import annotations

import numpy as np
import onnx

from tvm_dtr.models.bodies import INT64, Body, finish, last_is, value
from tvm_dtr.models.layers import LayerStack


def scan_language_model(
    *,
    batch: int | None,
    seed: int,
    context: int = 64,
    width: int = 128,
    vocabulary: int = 256,
) -> onnx.ModelProto:
    """Tokens (context, N) in, logits (context, vocabulary, N) out: the next token at each place.

    A gated recurrent cell (a minimal GRU) is the body of the Scan.
    """
    if batch is None:
        raise ValueError("the batch must be a number")
    stack = LayerStack(seed)
    scale = (1 / width) ** 0.5
    table = stack.embedding("embed.weight", (vocabulary, width), scale)
    rows = stack.node("Gather", "embed", [table, "x"], axis=0)
    recurrent = stack.embedding("cell.weight", (width, 2 * width), scale)
    bias = stack.parameter("cell.bias", np.zeros(2 * width))
    body = Body(stack)
    both = body.node("MatMul", "cell.product", [body.add("h", "row", "cell.sum"), recurrent])
    gate, new = body.nodes("Split", "cell.split", [body.add(both, bias, "cell.biased")], 2, axis=1)
    gate, new = body.node("Sigmoid", "cell.gate", [gate]), body.node("Tanh", "cell.new", [new])
    change = body.node("Mul", "cell.change", [gate, body.node("Sub", "cell.off", [new, "h"])])
    hidden = body.add("h", change, "cell.hidden")
    seen = body.node("Identity", "cell.seen", [hidden])
    size = [batch, width]
    graph = body.graph(
        "cell", [value("h", size), value("row", size)], [value(hidden, size), value(seen, size)]
    )
    zero = stack.constant("zero", np.zeros(size, np.float32))
    states = stack.nodes("Scan", "scan", [zero, rows], 2, body=graph, num_scan_inputs=1)[1]
    out = stack.matmul(states, "head", width, vocabulary, scale=scale)
    stack.node("Transpose", "classes_second", [out], perm=[0, 2, 1])
    logits = last_is(stack, "logits")
    return finish(
        stack,
        "scan-lm",
        [value("x", [context, batch], INT64)],
        [value(logits, [context, vocabulary, batch])],
    )
