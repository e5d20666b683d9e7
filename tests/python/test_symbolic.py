"""Sizes that change from step to step: a batch of any size, bitwise as programs of that size."""

from __future__ import annotations

from typing import Any

import flow_models
import numpy as np
import onnx
import pytest
from flow_models import info, node, stored

import tvm_dtr
from tvm_dtr import models
from tvm_dtr.cli.entry import main


def conv_net() -> onnx.ModelProto:
    """Convolution, batch normalization, pooling, a Reshape by the batch's size, a classifier."""
    kinds = onnx.TensorProto.FLOAT
    weights = [
        ("conv", (4, 3, 3, 3)), ("scale", (4,)), ("shift", (4,)), ("mean", (4,)), ("var", (4,)),
        ("fc", (16, 5)),
    ]  # fmt: skip
    initializers = [
        onnx.numpy_helper.from_array(
            onnx.numpy_helper.to_array(stored(name, shape)).astype("float32"), name
        )
        for name, shape in weights
    ]
    nodes = [
        node("Conv", ["x", "conv"], ["c"], pads=[1, 1, 1, 1]),
        node("BatchNormalization", ["c", "scale", "shift", "mean", "var"], ["n"]),
        node("Relu", ["n"], ["r"]),
        node("AveragePool", ["r"], ["p"], kernel_shape=[4, 4], strides=[4, 4]),
        node("Shape", ["x"], ["shape"]),
        flow_models.number("first", [0]),
        flow_models.number("rest", [16]),
        node("Gather", ["shape", "first"], ["batch"], axis=0),
        node("Concat", ["batch", "rest"], ["flat"], axis=0),
        node("Reshape", ["p", "flat"], ["rows"]),
        node("MatMul", ["rows", "fc"], ["logits"]),
    ]
    inputs = [info("x", ["N", 3, 8, 8], kinds)]
    outputs = [info("logits", ["N", 5], kinds)]
    return flow_models.model(nodes, inputs, outputs, initializers)


MODELS: dict[str, tuple[Any, tuple[int, ...], int]] = {
    "mlp": (lambda: models.mlp(batch=None, seed=0, features=16, width=32), (16,), 10),
    "conv": (conv_net, (3, 8, 8), 5),
    "lstm": (lambda: models.lstm(batch=None, seed=0, steps=8, features=3, width=8), (8, 3), 10),
}


LARGE, SMALL = 256, 64


def batch(size: int, shape: tuple[int, ...], classes: int) -> dict[str, np.ndarray]:
    random = np.random.default_rng(size)
    x = random.standard_normal((size, *shape)).astype("float32")
    return {"x": x, "labels": random.integers(0, classes, size)}


@pytest.mark.parametrize("name", MODELS)
def test_every_step_is_bitwise_that_of_a_program_of_its_size(name: str) -> None:
    make, shape, classes = MODELS[name]
    model, options = make(), {"loss": "cross_entropy", "optimizer": tvm_dtr.SGD(momentum=0.9)}
    program = tvm_dtr.build(model, shapes={"x": ("N", *shape)}, **options)
    assert [s.shape for s in program.inputs[:2]] == [("N", *shape), ("N",)]
    budget = program.at(N=LARGE).replay.smallest_budget(
        policy="lru", thrash_limit=5.0, tolerance=1024, reserve=32768, steps=2
    )
    assert budget < program.measure(batch(LARGE, shape, classes), batch(SMALL, shape, classes))
    # Least recently used: a policy that costs, and so the machine, have no part in.
    vm = tvm_dtr.VirtualMachine(program, memory_budget=budget, policy="lru")
    fixed = {n: tvm_dtr.build(model, shapes={"x": (n, *shape)}, **options) for n in (LARGE, SMALL)}
    state = program.initial_state
    evictions = 0
    for size in (LARGE, SMALL, SMALL, LARGE):
        other = tvm_dtr.VirtualMachine(fixed[size])
        other.set_parameters(state)
        expected = other.step(**batch(size, shape, classes))
        results = vm.step(**batch(size, shape, classes))
        state = {n: np.asarray(v) for n, v in other.parameters.items()}
        assert {n: v.tobytes() for n, v in results.items()} == {
            n: v.tobytes() for n, v in expected.items()
        }
        assert all(vm.parameters[n].tobytes() == v.tobytes() for n, v in state.items())
        assert vm.stats["peak_bytes"] <= budget
        evictions += vm.stats["evictions"]
    assert evictions > 0
    vm.validate()


def test_sizes_that_change_leave_nothing_behind() -> None:
    program = tvm_dtr.build(
        models.make("mlp1", batch=None), loss="cross_entropy", shapes={"x": ("N", 784)}
    )
    vm = tvm_dtr.VirtualMachine(program)
    held = set()
    for step in range(8):
        vm.step(**batch(2 + step % 2, (784,), 10))
        counters = vm.counters()
        held.add((counters["active_bytes"], counters["live_tensors"], counters["live_ops"]))
    assert len(held) == 1
    assert len(program.built) == 2


def test_a_size_that_the_model_fixes_is_refused_by_node() -> None:
    nodes = [
        flow_models.number("form", [4, 6]),
        node("Reshape", ["x", "form"], ["rows"], name="flatten"),
        node("MatMul", ["rows", "W"], ["y"]),
    ]
    model = flow_models.model(
        nodes, [info("x", ["N", 2, 3])], [info("y", [4, 3])], [stored("W", [6, 3])]
    )
    with pytest.raises(tvm_dtr.ModelError, match=r"node 'flatten' \(Reshape\).*fixes a size.*: N"):
        tvm_dtr.build(model, loss="mse", shapes={"x": ("N", 2, 3)})


def test_the_length_of_a_loop_stays_open_beside_a_batch_that_is_built_for() -> None:
    """Scan over time (open) with states made from the batch's size (built for)."""
    inner = onnx.helper.make_graph(
        [
            node("MatMul", ["h", "W"], ["hW"]),
            node("Add", ["hW", "row"], ["z"]),
            node("Tanh", ["z"], ["new"]),
        ],
        "body",
        [info("h", ["N", 3]), info("row", ["N", 3])],
        [info("new", ["N", 3])],
    )
    nodes = [
        node("MatMul", ["start", "W"], ["h0"]),
        node("Scan", ["h0", "x"], ["y"], body=inner, num_scan_inputs=1),
    ]
    inputs = [info("x", ["time", "N", 3]), info("start", ["N", 3])]
    model = flow_models.model(nodes, inputs, [info("y", ["N", 3])], [stored("W", [3, 3])])
    shapes = {"x": ("time", "N", 3), "start": ("N", 3)}
    program = tvm_dtr.build(model, loss="mse", shapes=shapes)
    assert program.names == ("N",)
    vm = tvm_dtr.VirtualMachine(program)
    weight = program.initial_state["W"]
    for time, size in [(3, 2), (5, 2)]:
        x, h = np.ones((time, size, 3)), np.full((size, 3), 0.1)
        results = vm.step(x=x, start=h, target=np.zeros((size, 3)))
        h = h @ weight
        for row in x:
            h = np.tanh(h @ weight + row)
        np.testing.assert_allclose(results["y"], h, rtol=1e-12)
    assert len(program.built) == 1


def test_what_has_no_one_size_is_refused(tmp_path, capsys) -> None:
    model = models.make("mlp1", batch=None)
    program = tvm_dtr.build(model, loss="cross_entropy", shapes={"x": ("N", 784)})
    with pytest.raises(tvm_dtr.ProgramError, match=r"sizes that change \(N\)"):
        program.save(tmp_path / "program.tdtr")
    with pytest.raises(tvm_dtr.UsageError, match=r"sizes that change from step to step \(N\)"):
        _ = program.replay
    with pytest.raises(tvm_dtr.UsageError, match=r"take program\.at\(N=\.\.\.\)"):
        tvm_dtr.VirtualMachine(program).start_trace(tmp_path / "events.dtrace")
    onnx.save(model, tmp_path / "mlp.onnx")
    run = ["run", str(tmp_path / "mlp.onnx"), "--shape", "x=N,784", "--length", "N=2..3"]
    assert main([*run, "--memory-budget", "100%", "--steps", "3"]) == 0
    assert "budgeted" in capsys.readouterr().out
