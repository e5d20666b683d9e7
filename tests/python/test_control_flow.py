"""Branches and loops: gradients, results under a budget, depth, growth, messages."""

from __future__ import annotations

import flow_models
import numpy as np
import onnx
import pytest
from flow_oracle import check_gradients

import tvm_dtr
from tvm_dtr.verify import StockVM

X_SHAPE = {"x": ("time", flow_models.BATCH, flow_models.WIDTH)}


def rows(count: int, seed: int = 0) -> np.ndarray:
    shape = (count, flow_models.BATCH, flow_models.WIDTH)
    return np.random.default_rng([seed, count]).standard_normal(shape)


def target() -> np.ndarray:
    return rows(1, seed=9)[0]


@pytest.fixture(scope="module")
def rnn() -> tvm_dtr.Program:
    return tvm_dtr.build(flow_models.rnn(), loss="mse", shapes=X_SHAPE)


def rnn_inputs(count: int, trip: int | None = None, seed: int = 0) -> dict:
    trips = np.int64(count if trip is None else trip)
    return {"x": rows(count, seed), "n": trips, "target": target()}


def test_loop_over_run_time_lengths(rnn: tvm_dtr.Program) -> None:
    batches = [rnn_inputs(n) for n in (0, 1, 2, 17, 100)]
    check_gradients(flow_models.rnn(), rnn, [*batches, rnn_inputs(5, trip=2)])


def test_rows_out_of_a_loop_are_stacked_in_order(rnn: tvm_dtr.Program) -> None:
    vm = tvm_dtr.VirtualMachine(rnn)
    for count in (0, 1, 5):
        squares = vm.step(**rnn_inputs(count))["squares"]
        h, expected = rnn.initial_state["h0"], []
        for row in rows(count):
            h = np.tanh(h @ np.tanh(rnn.initial_state["V"]) + row)
            expected.append(h * h)
        assert squares.shape == (count, flow_models.BATCH, flow_models.WIDTH)
        np.testing.assert_allclose(squares, np.reshape(expected, squares.shape), rtol=1e-12)


@pytest.mark.parametrize("count", [True, False])
def test_loop_with_a_condition(count: bool) -> None:
    model = flow_models.rnn(count=count, condition=True, scans=count)
    program = tvm_dtr.build(model, loss="mse", shapes=X_SHAPE)
    batches = [{"x": rows(40) + 0.3, "target": target()}]
    if count:
        batches = [{**batches[0], "n": np.int64(n)} for n in (0, 1, 30)]
    check_gradients(model, program, batches)


def test_branch() -> None:
    model = flow_models.branch()
    program = tvm_dtr.build(model, loss="mse")
    x = np.abs(target())
    check_gradients(model, program, [{"x": s * x, "target": target()} for s in (1, -1)])


def test_loop_in_a_loop_with_a_branch() -> None:
    model = flow_models.nested()
    program = tvm_dtr.build(model, loss="mse")
    lengths = [(0, 3), (1, 0), (3, 2), (2, 5)]
    batches = [
        {"x": rows(1)[0], "n": np.int64(n), "m": np.int64(m), "target": target()}
        for n, m in lengths
    ]
    check_gradients(model, program, batches)


def test_scan_in_both_directions() -> None:
    model = flow_models.scan()
    program = tvm_dtr.build(model, loss="mse", shapes={"x": (7, *X_SHAPE["x"][1:])})
    check_gradients(model, program, [{"x": rows(7), "target": rows(7, seed=3)}])


def test_results_under_a_budget_are_those_of_the_stock_vm(rnn: tvm_dtr.Program) -> None:
    inputs = rnn_inputs(300)
    expected = StockVM(rnn).step(**inputs)
    peak = rnn.measure(inputs)
    vm = tvm_dtr.VirtualMachine(rnn, memory_budget=int(peak * 0.8), thrash_limit=0)
    for _ in range(2):
        results = vm.step(**inputs)
        assert vm.stats["rematerializations"] > 0
        assert vm.stats["peak_bytes"] <= int(peak * 0.8)
        assert all(results[k].tobytes() == expected[k].tobytes() for k in expected)
    vm.validate()


def test_percent_of_a_peak_that_is_not_known(rnn: tvm_dtr.Program, tmp_path) -> None:
    rnn.save(tmp_path / "rnn.tdtr")
    loaded = tvm_dtr.load(tmp_path / "rnn.tdtr")
    loaded.measured_peak_bytes = None
    with pytest.raises(tvm_dtr.UsageError, match=r"program\.measure\(inputs\)"):
        tvm_dtr.VirtualMachine(loaded, memory_budget="50%")
    peak = loaded.measure(rnn_inputs(20))
    vm = tvm_dtr.VirtualMachine(loaded, memory_budget="90%")
    assert vm.stats["budget_bytes"] == int(peak * 0.9)
    with pytest.raises(tvm_dtr.UsageError, match="neither replayed nor planned"):
        _ = loaded.replay


def test_changing_lengths_leave_nothing_behind(rnn: tvm_dtr.Program) -> None:
    vm = tvm_dtr.VirtualMachine(rnn)
    lengths = np.random.default_rng(0).integers(0, 40, 60)
    held = []
    for n in lengths:
        vm.step(**rnn_inputs(int(n)))
        counters = vm.counters()
        held.append((counters["active_bytes"], counters["live_tensors"], counters["live_ops"]))
    assert len(set(held[30:])) == 1


def test_ten_thousand_iterations(rnn: tvm_dtr.Program) -> None:
    """Frames, pullbacks and lists of 10,000: nothing recurses on the C++ stack."""
    results = tvm_dtr.VirtualMachine(rnn).step(**rnn_inputs(10_000))
    assert results["squares"].shape[0] == 10_000
    assert np.isfinite(results["grad:V"]).all()


def test_state_that_changes_its_shape_is_refused() -> None:
    inner = [
        flow_models.node("Concat", ["h", "h"], ["new"], axis=0),
        flow_models.node("Identity", ["go_on"], ["again"]),
    ]
    loop = flow_models.body(inner, [("h", ["rows", 3])], ["again", ("new", ["more", 3])])
    nodes = [
        flow_models.node("Mul", ["x", "W"], ["h0"]),
        flow_models.node("Loop", ["n", "", "h0"], ["y"], name="grow", body=loop),
    ]
    x, n = flow_models.info("x", [2, 3]), flow_models.info("n", [], onnx.TensorProto.INT64)
    y = flow_models.info("y", ["rows", 3])
    model = flow_models.model(nodes, [x, n], [y], [flow_models.stored("W", [3])])
    with pytest.raises(
        tvm_dtr.ModelError, match=r"'grow' \(Loop\).*state 'h0'.*\[2, 3\].*\[4, 3\]"
    ):
        tvm_dtr.build(model, loss="mse")


def test_what_is_held_has_its_role(rnn: tvm_dtr.Program) -> None:
    inputs = rnn_inputs(300)
    peak, roles = rnn.measure(inputs), {}
    for budget in range(peak // 2, 0, -(peak // 20)):
        try:
            vm = tvm_dtr.VirtualMachine(rnn, memory_budget=budget, thrash_limit=0)
            vm.step(**inputs)
        except tvm_dtr.BudgetError as error:
            roles |= {holder["name"]: holder["role"] for holder in error.holders}
    assert roles["x"] == "inputs and constants"
    assert roles["V"] == roles["h0"] == "parameters"
    made = {role for name, role in roles.items() if name.startswith("output of ")}
    assert made == {"activations and gradients"}
