"""VirtualMachine on a training program: steps, parameters, budgets, errors."""

import os

os.environ.setdefault("TOPHUB_LOCATION", "NONE")

import gc
import weakref

import numpy as np
import pytest
import tvm
from tvm import relay

from tvm_dtr.compile import compile_step
from tvm_dtr.errors import BudgetError, InputError, ThrashError, UsageError
from tvm_dtr.training import Result, TensorSpec, TrainingStep
from tvm_dtr.vm import VirtualMachine

LAYERS, WIDTH, BATCH = 10, 32, 1024


def mlp_step():
    """Linear layers with tanh and a square loss, gradients written out, plain SGD."""
    x = relay.var("x", shape=(BATCH, WIDTH))
    labels = relay.var("labels", shape=(BATCH,), dtype="int64")
    weights = [relay.var(f"w{i}", shape=(WIDTH, WIDTH)) for i in range(LAYERS)]
    values = [x]
    for w in weights:
        values.append(relay.tanh(relay.nn.dense(values[-1], w)))
    target = relay.one_hot(labels, relay.const(1.0), relay.const(0.0), WIDTH, -1, "float32")
    error = values[-1] - target
    loss = relay.mean(error * error)
    gradient = error * relay.const(2.0 / (BATCH * WIDTH))
    updates = []
    for i in reversed(range(LAYERS)):
        before = gradient * (relay.const(1.0) - values[i + 1] * values[i + 1])
        slope = relay.nn.dense(relay.transpose(before), relay.transpose(values[i]))
        updates.append((f"w{i}", weights[i] - relay.const(0.5) * slope))
        gradient = relay.nn.dense(before, relay.transpose(weights[i]))
    body = relay.Tuple([loss, values[-1], *(u for _, u in updates)])
    function = relay.Function([x, labels, *weights], body)
    function = relay.transform.InferType()(tvm.IRModule.from_expr(function))["main"]
    rng = np.random.default_rng(0)
    state = [TensorSpec(f"w{i}", (WIDTH, WIDTH), "float32") for i in range(LAYERS)]
    return TrainingStep(
        function=function,
        inputs=[
            TensorSpec("x", (BATCH, WIDTH), "float32"),
            TensorSpec("labels", (BATCH,), "int64"),
        ],
        state=state,
        initial_state={s.name: rng.standard_normal(s.shape).astype("float32") / 6 for s in state},
        results=[
            Result("loss", "output"),
            Result("y", "output"),
            *(Result(name, "state") for name, _ in updates),
        ],
        parameter_names=[s.name for s in state],
    )


@pytest.fixture(scope="module")
def program():
    return compile_step(mlp_step(), "llvm")


@pytest.fixture(scope="module")
def batch():
    rng = np.random.default_rng(1)
    return {
        "x": rng.standard_normal((BATCH, WIDTH)).astype("float32"),
        "labels": rng.integers(0, WIDTH, BATCH),
    }


@pytest.fixture(scope="module")
def reference(program, batch):
    """Losses and parameters of 4 steps on the stock VM."""
    vm = tvm.runtime.vm.VirtualMachine(program.executable, tvm.cpu())
    state = {s.name: tvm.nd.array(program.initial_state[s.name]) for s in program.state}
    steps = []
    for _ in range(4):
        fields = vm.invoke("main", batch["x"], batch["labels"], *state.values())
        results = dict(zip([r.name for r in program.results], fields, strict=True))
        state = {name: results[name] for name in state}
        steps.append({name: array.numpy() for name, array in results.items()})
    return steps


def assert_step(outputs, parameters, expected):
    assert outputs["loss"].tobytes() == expected["loss"].tobytes()
    assert outputs["y"].tobytes() == expected["y"].tobytes()
    for name in parameters:
        assert parameters[name].tobytes() == expected[name].tobytes()


@pytest.mark.parametrize("budget", [None, "90%", "70%", "55%"])
def test_steps_equal_the_stock_vm(program, batch, reference, budget):
    vm = VirtualMachine(program, memory_budget=budget)
    for expected in reference:
        outputs = vm.step(**batch)
        assert set(outputs) == {"loss", "y"}
        assert outputs["loss"].shape == ()
        assert_step(outputs, vm.parameters, expected)
        vm.validate()
        stats = vm.stats
        if budget is not None:
            assert stats["peak_bytes"] <= stats["budget_bytes"]
            assert stats["rematerializations"] > 0
        assert stats["loss"] == float(expected["loss"])
    assert vm.stats["steps"] == 4
    assert reference[3]["loss"] < reference[0]["loss"]


def test_replay_predicts_the_peak(program, batch):
    vm = VirtualMachine(program)
    vm.step(**batch)
    # All tensors here are whole pages but the labels and the loss.
    assert abs(vm.stats["peak_bytes"] - program.unbudgeted_peak_bytes) <= 2 * 16384


def test_stats_have_the_result_fields(program, batch):
    vm = VirtualMachine(program, memory_budget="80%")
    vm.step(**batch)
    assert set(vm.stats) == {
        "budget_bytes",
        "peak_bytes",
        "unbudgeted_peak_bytes",
        "pinned_bytes",
        "workspace_bytes",
        "step_seconds",
        "compute_seconds",
        "remat_seconds",
        "search_seconds",
        "evictions",
        "rematerializations",
        "loss",
        "steps",
        "policy",
        "policy_reason",
        "predicted_slowdown",
    }
    assert vm.counters()["workspace_tracked"] == 1


def test_refused_before_the_first_step_with_the_smallest_budget(program, batch, reference):
    with pytest.raises(BudgetError) as caught:
        VirtualMachine(program, memory_budget="100KiB")
    error = caught.value
    assert error.budget_bytes == 100 * 1024
    assert str(error.needed_budget_bytes) in str(error)
    vm = VirtualMachine(program, memory_budget=error.needed_budget_bytes, thrash_limit=0)
    for expected in reference:
        assert_step(vm.step(**batch), vm.parameters, expected)
    with pytest.raises(BudgetError):
        VirtualMachine(program, memory_budget=error.needed_budget_bytes * 3 // 4)


def test_a_step_that_ran_out_can_go_on(program, batch, reference):
    vm = VirtualMachine(program, thrash_limit=0)
    vm.step(**batch)
    before = {name: value.tobytes() for name, value in vm.parameters.items()}
    enough = program.replay.smallest_budget(thrash_limit=0)
    vm.set_budget(enough * 3 // 4)
    with pytest.raises(BudgetError) as caught:
        vm.step(**batch)
    assert caught.value.op
    assert {name: value.tobytes() for name, value in vm.parameters.items()} == before
    vm.set_budget(None)
    assert_step(vm.resume(), vm.parameters, reference[1])
    assert vm.stats["steps"] == 2
    assert_step(vm.step(**batch), vm.parameters, reference[2])


def test_thrashing_stops_and_leaves_the_parameters(program, batch, reference):
    smallest = program.replay.smallest_budget(thrash_limit=0) + 6 * 16384
    vm = VirtualMachine(program, thrash_limit=1e-9)
    vm.set_budget(smallest)
    with pytest.raises(ThrashError, match="thrash limit"):
        vm.step(**batch)
    vm.set_budget(None)
    assert_step(vm.step(**batch), vm.parameters, reference[0])


def test_inputs_are_checked_all_at_once(program, batch):
    vm = VirtualMachine(program)
    with pytest.raises(InputError) as caught:
        vm.step(x=batch["x"][:3], image=batch["x"])
    message = str(caught.value)
    assert "missing input 'labels' (int64[1024])" in message
    assert "unknown input 'image'" in message
    assert "'x': expected float32[1024, 32], got float32[3, 32]" in message
    with pytest.raises(InputError, match=r"expected float32\[1024, 32\], got float64"):
        vm.step(x=batch["x"].astype("float64"), labels=batch["labels"])
    with pytest.raises(InputError, match=r"expected int64\[1024\], got float32"):
        vm.step(x=batch["x"], labels=batch["labels"].astype("float32"))
    assert vm.stats["steps"] == 0


def test_lists_and_smaller_integers_are_accepted(program, batch, reference):
    vm = VirtualMachine(program)
    x = batch["x"].astype("float64").tolist()
    outputs = vm.step(x=x, labels=batch["labels"].astype("int32"))
    assert_step(outputs, vm.parameters, reference[0])


def test_parameters_can_be_read_and_replaced(program, batch, reference):
    vm = VirtualMachine(program)
    assert list(vm.parameters) == [f"w{i}" for i in range(LAYERS)]
    vm.step(**batch)
    vm.set_parameters(program.initial_state)
    assert_step(vm.step(**batch), vm.parameters, reference[0])
    vm.parameters["w0"] = program.initial_state["w0"] + 1
    np.testing.assert_array_equal(vm.parameters["w0"], program.initial_state["w0"] + 1)
    with pytest.raises(InputError, match="unknown parameter 'weight'"):
        vm.parameters["weight"] = np.zeros(3, "float32")
    with pytest.raises(InputError, match=r"'w1': expected float32\[32, 32\], got float32\[3\]"):
        vm.set_parameters({"w0": program.initial_state["w0"], "w1": np.zeros(3, "float32")})
    np.testing.assert_array_equal(vm.parameters["w0"], program.initial_state["w0"] + 1)


def test_between_steps_only_the_state_is_held(program, batch):
    # One policy throughout: with another, other updates may be written in place.
    vm = VirtualMachine(program, memory_budget="80%", policy="dtr-eq")
    held = set()
    for _ in range(5):
        vm.step(**batch)
        counters = vm.counters()
        assert (counters["live_ops"], counters["live_outputs"]) == (0, LAYERS)
        held.add((counters["live_tensors"], counters["active_bytes"]))
    assert len(held) == 1


def test_memory_goes_with_the_vm(program, batch):
    vm = VirtualMachine(program)
    vm.step(**batch)
    gone = weakref.ref(vm)
    gc.disable()
    try:
        del vm
        assert gone() is None
    finally:
        gc.enable()


def test_percent_needs_a_program(program):
    with pytest.raises(UsageError, match="unbudgeted peak"):
        VirtualMachine(program.executable, memory_budget="40%")


def test_a_step_that_an_error_stops_leaves_nothing_behind(program, batch):
    vm = VirtualMachine(program, thrash_limit=0)
    vm.step(**batch)
    pinned = vm.counters()["pinned_bytes"]
    too_little = program.replay.smallest_budget(thrash_limit=0) * 3 // 4
    gc.disable()  # what a cycle holds stays
    try:
        for _ in range(3):
            vm.set_budget(too_little)
            with pytest.raises(BudgetError):
                vm.step(**batch)
            vm.set_budget(None)
            vm.resume()
            assert vm.counters()["pinned_bytes"] == pinned
    finally:
        gc.enable()


def test_what_a_caller_did_wrong_is_one_line(program, batch):
    vm = VirtualMachine(program)
    with pytest.raises(UsageError, match=r"^there is nothing to resume: [^\n]*$"):
        vm.resume()
    vm.step(**batch)
    with pytest.raises(UsageError, match=r"^there is nothing to resume: [^\n]*$"):
        vm.resume()
    with pytest.raises(UsageError, match=r"^the inputs of function 'main' are not set[^\n]*$"):
        vm.invoke("main")


def held_names(vm):
    with pytest.raises(BudgetError) as caught:
        vm.set_budget(1000)
    # Small constants of the program are host values.
    return {holder["name"] for holder in caught.value.holders} - {"host value"}


def test_parameters_are_held_under_their_names(program, batch):
    vm = VirtualMachine(program)
    for _ in range(3):
        assert held_names(vm) == {f"w{i}" for i in range(LAYERS)}
        vm.step(**batch)
    vm.set_parameters({"w3": program.initial_state["w3"]})
    assert held_names(vm) == {f"w{i}" for i in range(LAYERS)}


def test_an_input_may_be_called_self(program):
    vm = VirtualMachine(program)
    with pytest.raises(InputError, match="unknown input 'self'"):
        vm.step(self=1)
