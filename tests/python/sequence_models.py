"""Small ONNX models with sequences of tensors, in float64."""

from __future__ import annotations

import onnx
from flow_models import BATCH, MATRIX, SQUARE, WIDTH, body, info, model, node, number, stored
from onnx import TensorProto, helper

ROWS = info("x", ["time", *MATRIX])
COUNT = info("n", [], TensorProto.INT64)


def sequence(name: str) -> onnx.ValueInfoProto:
    return helper.make_tensor_sequence_value_info(name, TensorProto.DOUBLE, None)


def with_sequence(graph: onnx.GraphProto, *names: str) -> onnx.GraphProto:
    """The body with more states, sequences: pairs of the one before and the one after."""
    for before, after in zip(names[::2], names[1::2], strict=True):
        graph.input.append(sequence(before))
        graph.output.append(sequence(after))
    return graph


def appended() -> onnx.ModelProto:
    """A loop appends its states to a sequence; a second one takes them out again, weighted."""
    collect = with_sequence(
        body(
            [
                node("MatMul", ["h", "W"], ["hW"]),
                node("Gather", ["x", "i"], ["row"], axis=0),
                node("Add", ["hW", "row"], ["z"]),
                node("Tanh", ["z"], ["new"]),
                node("SequenceInsert", ["seq", "new"], ["longer"]),
                node("Identity", ["go_on"], ["again"]),
            ],
            [("h", MATRIX)],
            ["again", ("new", MATRIX)],
        ),
        "seq",
        "longer",
    )
    use = body(
        [
            node("SequenceAt", ["all", "i"], ["one"]),
            node("Mul", ["one", "g"], ["weighted"]),
            node("Mul", ["weighted", "one"], ["square"]),
            node("Add", ["total", "square"], ["sum"]),
            node("Identity", ["go_on"], ["again"]),
        ],
        [("total", MATRIX)],
        ["again", ("sum", MATRIX)],
    )
    nodes = [
        node("SequenceEmpty", [], ["empty"], dtype=TensorProto.DOUBLE),
        node("Loop", ["n", "", "h0", "empty"], ["last", "all"], body=collect, name="collect"),
        node("SequenceLength", ["all"], ["count"]),
        node("Loop", ["count", "", "last"], ["y"], body=use, name="use"),
        node("ConcatFromSequence", ["all"], ["stacked"], axis=1, new_axis=1),
    ]
    outputs = [info("y", MATRIX), info("stacked", [BATCH, "time", WIDTH])]
    weights = [stored("h0", MATRIX), stored("W", SQUARE), stored("g", [WIDTH])]
    return model(nodes, [ROWS, COUNT], outputs, weights)


def layers() -> onnx.ModelProto:
    """A loop carries the states of two layers as a sequence of two tensors, and rows of its input
    come from a sequence too."""
    graph = with_sequence(
        body(
            [
                node("SequenceAt", ["seq", "zero"], ["h1"]),
                node("SequenceAt", ["seq", "minus"], ["h2"]),
                node("SequenceAt", ["xs", "i"], ["row"]),
                node("MatMul", ["h1", "W"], ["h1W"]),
                node("Add", ["h1W", "row"], ["z1"]),
                node("Tanh", ["z1"], ["new1"]),
                node("MatMul", ["h2", "V"], ["h2V"]),
                node("Add", ["h2V", "new1"], ["z2"]),
                node("Tanh", ["z2"], ["new2"]),
                node("SequenceErase", ["seq", "zero"], ["shorter"]),
                node("SequenceErase", ["shorter"], ["none"]),
                node("SequenceInsert", ["none", "new2"], ["second"]),
                node("SequenceInsert", ["second", "new1", "zero"], ["both"]),
                node("Identity", ["go_on"], ["again"]),
            ],
            [],
            ["again"],
        ),
        "seq",
        "both",
    )
    nodes = [
        number("zero", 0),
        number("minus", -1),
        node("SplitToSequence", ["x"], ["xs"], axis=0, keepdims=0),
        node("SequenceConstruct", ["h0", "h0"], ["start"]),
        node("Loop", ["n", "", "start"], ["ends"], body=graph, name="layers"),
        node("ConcatFromSequence", ["ends"], ["y"], axis=1),
    ]
    weights = [stored("h0", MATRIX), stored("W", SQUARE), stored("V", SQUARE, 1)]
    return model(nodes, [ROWS, COUNT], [info("y", [BATCH, 2 * WIDTH])], weights)


def straight() -> onnx.ModelProto:
    """Every op on sequences of known lengths, one of them from a branch."""
    then = helper.make_graph(
        [node("SequenceConstruct", ["xW", "x"], ["a"])], "then", [], [sequence("a")]
    )
    other = helper.make_graph(
        [node("SequenceConstruct", ["x", "xW"], ["c"])], "other", [], [sequence("c")]
    )
    nodes = [
        number("zero", 0.0, "float64"),
        number("one", 1),
        number("sizes", [1, 2]),
        node("MatMul", ["x", "W"], ["xW"]),
        node("ReduceSum", ["x"], ["sum"], keepdims=0),
        node("Greater", ["sum", "zero"], ["positive"]),
        node("If", ["positive"], ["chosen"], then_branch=then, else_branch=other, name="choose"),
        node("SequenceAt", ["chosen", "one"], ["second"]),
        node("SplitToSequence", ["second", "sizes"], ["parts"], axis=1),
        node("ConcatFromSequence", ["parts"], ["whole"], axis=1),
        node("SequenceInsert", ["chosen", "whole", "one"], ["three"]),
        node("SequenceAt", ["three", "k"], ["picked"]),
        node("SequenceLength", ["three"], ["count"]),
        node("Cast", ["count"], ["number"], to=TensorProto.DOUBLE),
        node("ConcatFromSequence", ["three"], ["stack"], axis=0, new_axis=1),
        node("ReduceSum", ["stack", "axis"], ["total"], keepdims=0),
        node("Mul", ["picked", "number"], ["scaled"]),
        node("Mul", ["scaled", "total"], ["y"]),
        number("unused", 0),
    ]
    nodes.insert(0, number("axis", [0]))
    inputs = [info("x", MATRIX), info("k", [], TensorProto.INT64)]
    return model(nodes, inputs, [info("y", MATRIX)], [stored("W", SQUARE)])
