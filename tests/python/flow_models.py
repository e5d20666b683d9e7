"""Small ONNX models with control flow, in any float type."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

DOUBLE = TensorProto.DOUBLE
BATCH, WIDTH = 2, 3
Shape = Sequence[int | str]


def info(name: str, shape: Shape, kind: int = DOUBLE) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, shape)


def node(op: str, inputs: Sequence[str], outputs: Sequence[str], **attributes: object):
    return helper.make_node(op, list(inputs), list(outputs), **attributes)


def stored(name: str, shape: Sequence[int], seed: int = 0) -> onnx.TensorProto:
    values = np.random.default_rng([seed, len(name)]).standard_normal(shape) * 0.5
    return numpy_helper.from_array(values, name)


def number(name: str, value: object, dtype: str = "int64") -> onnx.NodeProto:
    return node("Constant", [], [name], value=numpy_helper.from_array(np.array(value, dtype)))


def model(nodes, inputs, outputs, weights) -> onnx.ModelProto:
    graph = helper.make_graph(list(nodes), "flow", list(inputs), list(outputs), list(weights))
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])


def body(nodes, states: Sequence[tuple[str, Shape]], results) -> onnx.GraphProto:
    """Of a Loop: parameters i, go_on and ``states``; ``results`` with their shapes."""
    inputs = [info("i", [], TensorProto.INT64), info("go_on", [], TensorProto.BOOL)]
    inputs += [info(name, shape) for name, shape in states]
    outputs = [info(results[0], [], TensorProto.BOOL)]
    outputs += [info(name, shape) for name, shape in results[1:]]
    return helper.make_graph(list(nodes), "body", inputs, outputs)


MATRIX, SQUARE = [BATCH, WIDTH], [WIDTH, WIDTH]


def rnn(*, count: bool = True, condition: bool = False, scans: bool = True) -> onnx.ModelProto:
    """h = tanh(h W + x[i]): ``n`` times, or while the sum of h is under a limit, or both."""
    inner = [
        node("MatMul", ["h", "W"], ["hW"]),
        node("Gather", ["x", "i"], ["row"], axis=0),
        node("Add", ["hW", "row"], ["z"]),
        node("Tanh", ["z"], ["new"]),
        node("Mul", ["new", "new"], ["square"]),
    ]
    if condition:
        inner += [
            number("limit", 1.5, "float64"),
            node("ReduceSum", ["new"], ["total"], keepdims=0),
            node("Less", ["total", "limit"], ["again"]),
        ]
    else:
        inner.append(node("Identity", ["go_on"], ["again"]))
    results = ["again", ("new", MATRIX), *([("square", MATRIX)] if scans else [])]
    loop = body(inner, [("h", MATRIX)], results)
    outputs = ["last", *(["squares"] if scans else [])]
    nodes = [
        number("yes", True, "bool"),
        node("Tanh", ["V"], ["W"]),
        node(
            "Loop",
            ["n" if count else "", "yes" if condition else "", "h0"],
            outputs,
            body=loop,
        ),
        node("Mul", ["last", "last"], ["y"]),
    ]
    results = [info("y", MATRIX)]
    if scans:
        results.append(info("squares", ["time", *MATRIX]))
    inputs = [info("x", ["time", *MATRIX])]
    if count:
        inputs.append(info("n", [], TensorProto.INT64))
    weights = [stored("h0", MATRIX), stored("V", SQUARE, 1)]
    return model(nodes, inputs, results, weights)


def branch() -> onnx.ModelProto:
    """y = x W if the sum of x is positive, else tanh(x) * b; then times W's sum."""
    then = helper.make_graph([node("MatMul", ["x", "W"], ["a"])], "then", [], [info("a", MATRIX)])
    other = helper.make_graph(
        [node("MatMul", ["x", "V"], ["t"]), node("Mul", ["t", "b"], ["c"])],
        "other",
        [],
        [info("c", MATRIX)],
    )
    nodes = [
        number("zero", 0.0, "float64"),
        node("ReduceSum", ["x"], ["sum"], keepdims=0),
        node("Greater", ["sum", "zero"], ["positive"]),
        node("If", ["positive"], ["r"], then_branch=then, else_branch=other),
        node("MatMul", ["r", "W"], ["y"]),
    ]
    weights = [stored("W", SQUARE), stored("V", SQUARE, 1), stored("b", [WIDTH])]
    return model(nodes, [info("x", MATRIX)], [info("y", MATRIX)], weights)


def scan() -> onnx.ModelProto:
    """h = tanh(h W + x_t + reversed z_t), rows out reversed; over a length of the inputs."""
    inner = helper.make_graph(
        [
            node("MatMul", ["h", "W"], ["hW"]),
            node("Add", ["hW", "row"], ["s"]),
            node("Mul", ["s", "other"], ["p"]),
            node("Tanh", ["p"], ["new"]),
            node("Identity", ["new"], ["out"]),
        ],
        "body",
        [info("h", MATRIX), info("row", MATRIX), info("other", MATRIX)],
        [info("new", MATRIX), info("out", MATRIX)],
    )
    nodes = [
        node("Mul", ["x", "g"], ["gx"]),
        node(
            "Scan",
            ["h0", "gx", "x"],
            ["last", "rows"],
            body=inner,
            num_scan_inputs=2,
            scan_input_directions=[0, 1],
            scan_output_directions=[1],
        ),
        node("Mul", ["rows", "x"], ["y"]),
    ]
    weights = [stored("h0", MATRIX), stored("W", SQUARE), stored("g", [WIDTH])]
    shape = ["time", *MATRIX]
    return model(nodes, [info("x", shape)], [info("y", shape)], weights)


def nested() -> onnx.ModelProto:
    """A loop of a loop of a branch: both lengths are given at run time."""
    then = helper.make_graph([node("MatMul", ["g", "W"], ["a"])], "then", [], [info("a", MATRIX)])
    other = helper.make_graph([node("Mul", ["g", "b"], ["c"])], "other", [], [info("c", MATRIX)])
    inner = helper.make_graph(
        [
            number("zero", 0.0, "float64"),
            node("ReduceSum", ["g"], ["sum"], keepdims=0),
            node("Greater", ["sum", "zero"], ["positive"]),
            node("If", ["positive"], ["chosen"], then_branch=then, else_branch=other),
            node("Add", ["chosen", "h"], ["wide"]),
            node("Tanh", ["wide"], ["new_g"]),
            node("Identity", ["inner_go"], ["inner_again"]),
        ],
        "inner",
        [
            info("k", [], TensorProto.INT64),
            info("inner_go", [], TensorProto.BOOL),
            info("g", MATRIX),
        ],
        [info("inner_again", [], TensorProto.BOOL), info("new_g", MATRIX)],
    )
    outer = body(
        [
            node("Loop", ["m", "", "h"], ["deep"], body=inner),
            node("MatMul", ["deep", "W"], ["next"]),
            node("Identity", ["go_on"], ["again"]),
        ],
        [("h", MATRIX)],
        ["again", ("next", MATRIX)],
    )
    nodes = [
        node("MatMul", ["x", "W"], ["h0"]),
        node("Loop", ["n", "", "h0"], ["y"], body=outer),
    ]
    lengths = [info("n", [], TensorProto.INT64), info("m", [], TensorProto.INT64)]
    weights = [stored("W", SQUARE), stored("b", [WIDTH])]
    return model(nodes, [info("x", MATRIX), *lengths], [info("y", MATRIX)], weights)
