"""Sequences of tensors: gradients against onnxruntime's losses, and what is refused."""

from __future__ import annotations

from collections.abc import Sequence

import flow_models
import numpy as np
import onnx
import pytest
import sequence_models
from flow_models import MATRIX, body, info, node, number, stored
from flow_oracle import check_gradients

import tvm_dtr

OPEN = {"x": ("time", *MATRIX)}


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng([seed, *shape]).standard_normal(shape)


def batch(count: int, width: int) -> dict:
    shape = (MATRIX[0], width)
    return {"x": normal(count, *MATRIX), "n": np.int64(count), "target": normal(*shape, seed=1)}


def test_a_loop_appends_and_another_reads() -> None:
    model = sequence_models.appended()
    program = tvm_dtr.build(model, loss="mse", shapes=OPEN)
    # onnxruntime does not concatenate an empty sequence.
    check_gradients(model, program, [batch(n, 3) for n in (1, 2, 17)])
    nothing = tvm_dtr.VirtualMachine(program).step(**batch(0, 3))
    assert nothing["stacked"].shape == (2, 0, 3)
    off = program.initial_state["h0"] - batch(0, 3)["target"]
    np.testing.assert_allclose(nothing["grad:h0"], off / 3, rtol=1e-12)
    stacked = tvm_dtr.VirtualMachine(program).step(**batch(5, 3))["stacked"]
    h, rows = program.initial_state["h0"], []
    for row in batch(5, 3)["x"]:
        h = np.tanh(h @ program.initial_state["W"] + row)
        rows.append(h)
    np.testing.assert_allclose(stacked, np.stack(rows, 1), rtol=1e-12)


def test_a_loop_carries_a_sequence_of_states() -> None:
    model = sequence_models.layers()
    program = tvm_dtr.build(model, loss="mse", shapes=OPEN)
    check_gradients(model, program, [batch(n, 6) for n in (0, 1, 2, 17)])


def test_sequences_of_known_lengths() -> None:
    model = sequence_models.straight()
    program = tvm_dtr.build(model, loss="mse")
    x = np.abs(normal(*MATRIX))
    batches = [
        {"x": sign * x, "k": np.int64(k), "target": normal(*MATRIX, seed=1)}
        for sign, k in [(1, 0), (-1, 2), (1, -2)]
    ]
    check_gradients(model, program, batches)


def refusal(nodes: Sequence[onnx.NodeProto], outputs: Sequence[onnx.ValueInfoProto]) -> str:
    inputs = [info("x", MATRIX), info("n", [], onnx.TensorProto.INT64)]
    model = flow_models.model(nodes, inputs, outputs, [stored("W", MATRIX)])
    with pytest.raises(tvm_dtr.ModelError) as error:
        tvm_dtr.build(model, loss="mse")
    assert "\n" not in str(error.value)
    return str(error.value)


def looped(inner: Sequence[onnx.NodeProto], initial: Sequence[str], last: str) -> str:
    """The refusal of a loop that carries a sequence of ``initial`` and makes ``last`` of it."""
    graph = body([*inner, node("Identity", ["go_on"], ["again"])], [], ["again"])
    loop = node(
        "Loop",
        ["n", "", "start"],
        ["all"],
        body=sequence_models.with_sequence(graph, "seq", last),
        name="grow",
    )
    kind = {} if initial else {"dtype": onnx.TensorProto.DOUBLE}
    nodes = [
        node("Mul", ["x", "W"], ["xW"]),
        number("first", 0),
        node("SequenceConstruct" if initial else "SequenceEmpty", initial, ["start"], **kind),
        loop,
        node("ConcatFromSequence", ["all"], ["y"], axis=0, new_axis=1),
    ]
    return refusal(nodes, [info("y", ["time", *MATRIX])])


def test_a_loop_that_reads_what_it_appends_to() -> None:
    inner = [
        node("SequenceAt", ["seq", "first"], ["old"]),
        node("SequenceInsert", ["seq", "old"], ["longer"]),
    ]
    assert "node 'grow' (Loop): the loop appends to the sequence 'start' and also reads it" in (
        looped(inner, ["xW"], "longer")
    )


def test_a_loop_that_appends_twice() -> None:
    inner = [
        node("SequenceInsert", ["seq", "xW"], ["longer"]),
        node("SequenceInsert", ["longer", "x"], ["longest"]),
    ]
    message = looped(inner, [], "longest")
    assert "node 'grow' (Loop): the sequence 'start' has 0 tensors before" in message
    assert "one appended in every iteration" in message


def test_a_sequence_of_other_lengths_in_the_branches() -> None:
    arms = {}
    for arm, names in (("then_branch", ["x"]), ("else_branch", ["x", "x"])):
        made = node("SequenceConstruct", names, [arm])
        out = [sequence_models.sequence(arm)]
        arms[arm] = onnx.helper.make_graph([made], arm, [], out)
    nodes = [
        node("Mul", ["x", "W"], ["xW"]),
        number("limit", 3),
        node("Less", ["n", "limit"], ["few"]),
        node("If", ["few"], ["seq"], name="choose", **arms),
        node("ConcatFromSequence", ["seq"], ["rows"], axis=0),
        node("MatMul", ["rows", "xW"], ["y"]),
    ]
    message = refusal(nodes, [info("y", ["rows", 3])])
    assert "node 'choose' (If): result 'seq' has 1 tensors in one branch and 2" in message


@pytest.mark.parametrize(
    ("read", "expected"),
    [
        (node("SequenceErase", ["seq", "n"], ["y"], name="r"), "position ('n') depends on the"),
        (node("SequenceAt", ["seq", "far"], ["y"], name="r"), "position 5 is outside of a sequ"),
        (node("Tanh", ["seq"], ["y"], name="r"), "'seq' is a sequence of tensors where a tensor"),
        (node("SequenceLength", ["x"], ["y"], name="r"), "'x' is used as a sequence of tensors"),
    ],
    ids=["position", "outside", "tensor", "sequence"],
)
def test_reads_that_cannot_be(read: onnx.NodeProto, expected: str) -> None:
    nodes = [number("far", 5), node("SequenceConstruct", ["x", "W"], ["seq"]), read]
    assert expected in refusal(nodes, [info("y", MATRIX)])
