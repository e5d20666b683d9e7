"""Recurrent networks whose sequence length is known at run time only: ONNX Loops."""

from __future__ import annotations

import numpy as np
import onnx

from tvm_dtr.models.bodies import Body, finish, last_is, value
from tvm_dtr.models.layers import LayerStack

TIME = "time"


def lstm_loop(
    *,
    batch: int | None,
    seed: int,
    features: int = 64,
    width: int = 256,
    classes: int = 10,
) -> onnx.ModelProto:
    """An LSTM (Hochreiter and Schmidhuber, 1997) over ``x`` (time, N, features), then logits."""
    stack, rows = LayerStack(seed), _rows(batch)
    from_x, from_h, bias = _weights(stack, "lstm", features, width, 4)
    body = Body(stack)
    gates = _gates(body, "lstm", from_x, from_h, bias)
    i, f, g, o = body.nodes("Split", "lstm.split", [gates], 4, axis=1)
    i, f = body.node("Sigmoid", "lstm.input", [i]), body.node("Sigmoid", "lstm.forget", [f])
    new = body.node("Mul", "lstm.new", [i, body.node("Tanh", "lstm.candidate", [g])])
    cell = body.add(body.node("Mul", "lstm.kept", [f, "c"]), new, "lstm.cell")
    o = body.node("Sigmoid", "lstm.output", [o])
    hidden = body.node("Mul", "lstm.hidden", [o, body.node("Tanh", "lstm.tanh", [cell])])
    size = [rows, width]
    graph = body.loop_graph(
        "lstm.loop", [value("h", size), value("c", size)], [value(hidden, size), value(cell, size)]
    )
    zero = stack.constant("lstm.zero", np.zeros(size, np.float32))
    last = stack.nodes("Loop", "lstm.loop", [_length(stack), "", zero, zero], 2, body=graph)[0]
    return _classifier(stack, "lstm-loop", last, rows, features, width, classes)


def gru_loop(
    *,
    batch: int | None,
    seed: int,
    features: int = 64,
    width: int = 256,
    classes: int = 10,
) -> onnx.ModelProto:
    """A GRU (Cho et al., EMNLP 2014) over ``x`` (time, N, features), then logits."""
    stack, rows = LayerStack(seed), _rows(batch)
    from_x, from_h, bias = _weights(stack, "gru.gates", features, width, 2)
    new_x, new_h, new_bias = _weights(stack, "gru.new", features, width, 1)
    body = Body(stack)
    gates = body.node("Sigmoid", "gru.gate", [_gates(body, "gru", from_x, from_h, bias)])
    reset, update = body.nodes("Split", "gru.split", [gates], 2, axis=1)
    seen = body.node("MatMul", "gru.seen", ["gru.row.out", new_x])
    kept = body.node("Mul", "gru.kept", [reset, body.node("MatMul", "gru.past", ["h", new_h])])
    total = body.add(body.add(seen, kept, "gru.new_sum"), new_bias, "gru.new_biased")
    new = body.node("Tanh", "gru.candidate", [total])
    step = body.node("Mul", "gru.step", [update, body.node("Sub", "gru.change", ["h", new])])
    hidden = body.add(new, step, "gru.hidden")
    size = [rows, width]
    graph = body.loop_graph("gru.loop", [value("h", size)], [value(hidden, size)])
    zero = stack.constant("gru.zero", np.zeros(size, np.float32))
    last = stack.node("Loop", "gru.loop", [_length(stack), "", zero], body=graph)
    return _classifier(stack, "gru-loop", last, rows, features, width, classes)


def _rows(batch: int | None) -> int:
    if batch is None:
        raise ValueError("the batch must be a number: the sequence length is what varies")
    return batch


def _weights(
    stack: LayerStack, name: str, features: int, width: int, gates: int
) -> tuple[str, str, str]:
    scale = (1 / width) ** 0.5
    return (
        stack.embedding(f"{name}.weight_x", (features, gates * width), scale),
        stack.embedding(f"{name}.weight_h", (width, gates * width), scale),
        stack.parameter(f"{name}.bias", np.zeros(gates * width)),
    )


def _gates(body: Body, name: str, from_x: str, from_h: str, bias: str) -> str:
    row = body.node("Gather", f"{name}.row", ["x", f"{name}.loop.i"], axis=0)
    seen = body.node("MatMul", f"{name}.from_x", [row, from_x])
    past = body.node("MatMul", f"{name}.from_h", ["h", from_h])
    return body.add(body.add(seen, past, f"{name}.sum"), bias, f"{name}.gates")


def _length(stack: LayerStack) -> str:
    """The number of rows of x."""
    sizes = stack.node("Shape", "x.shape", ["x"])
    return stack.node("Gather", "length", [sizes, stack.constant("first", np.int64(0))], axis=0)


def _classifier(
    stack: LayerStack,
    name: str,
    last: str,
    rows: int,
    features: int,
    width: int,
    classes: int,
) -> onnx.ModelProto:
    stack.linear(last, "fc", width, classes)
    logits = last_is(stack, "logits")
    inputs = [value("x", [TIME, rows, features])]
    return finish(stack, name, inputs, [value(logits, [rows, classes])], [TIME])
