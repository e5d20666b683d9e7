"""Costs by a VM's own steps, and the policy that `auto` chooses by them."""

import numpy as np
import pytest

import tvm_dtr
from tvm_dtr import models
from tvm_dtr.cli.synthetic import synthetic_inputs
from tvm_dtr.compile.opgraph import Kernel, OpGraph
from tvm_dtr.measured_costs import AutoPolicy, mean_costs, median_costs, with_costs
from tvm_dtr.replay import AUTO_POLICIES, replay_of, step_boundary
from tvm_dtr.simulation import Trace, simulate


def test_costs_are_means_and_medians_by_name():
    times = np.array([[3e-6, 2], [0.0, 0], [5e-6, 1]])
    step = mean_costs(["a", "b", "c"], times)
    assert step == {"a": pytest.approx(1500), "c": pytest.approx(5000)}
    assert median_costs([{"a": 1.0, "b": 9.0}, {"a": 2.0}, {"a": 8.0}]) == {"a": 2.0, "b": 9.0}


def test_a_kernel_that_did_not_run_keeps_its_cost():
    graph = OpGraph(kernels=[Kernel("a", 1.0, 7), Kernel("b", 2.0, 8)])
    costs = with_costs(graph, {"b": 30.0}).kernels
    assert costs == [Kernel("a", 1.0, 7), Kernel("b", 30.0, 8)]
    assert graph.kernels[1].cost_ns == 2.0


@pytest.fixture(scope="module")
def program():
    return tvm_dtr.build(
        models.make("resnet8", batch=16), loss="cross_entropy", optimizer=tvm_dtr.SGD(0.01)
    )


def best_by_the_last_step(program, vm):
    """What simulating every policy on the measured graph gives for auto, checked on the way."""
    measured = with_costs(program.graph, vm.measured_costs())
    trace = Trace("measured", replay_of(measured, *step_boundary(program)))
    budgets = [vm.stats["budget_bytes"]]
    (auto,) = simulate(trace, policies=["auto"], budgets=budgets)
    single = simulate(trace, policies=AUTO_POLICIES, budgets=budgets)
    best = min(row["slowdown"] for row in single if row["result"] == "ok")
    assert best <= auto["slowdown"] <= best + 0.005
    return auto


def test_auto_goes_on_with_the_best_by_the_first_steps_costs(program):
    inputs = synthetic_inputs(program, seed=0)
    free = tvm_dtr.VirtualMachine(program)
    vm = tvm_dtr.VirtualMachine(program, memory_budget="60%")
    assert vm.policy_choice.costs == "built"
    for step in range(4):
        expected = free.step(**inputs)
        results = vm.step(**inputs)
        assert expected.keys() == results.keys()
        for name, value in results.items():
            np.testing.assert_array_equal(value, expected[name])
        vm.validate()
        if step < 2:
            best = best_by_the_last_step(program, vm)
            assert vm.policy == best["policy"]
            assert vm.stats["predicted_slowdown"] == best["slowdown"]
            assert "by the costs of its own step" in vm.stats["policy_reason"]
    predicted = vm.policy_choice.prediction
    for name in ("evictions", "rematerializations"):
        assert vm.stats[name] == predicted[name] > 0


def test_a_policy_that_was_named_stays_and_so_do_its_costs(program):
    inputs = synthetic_inputs(program, seed=0)
    vm = tvm_dtr.VirtualMachine(program, memory_budget="60%", policy="msps")
    vm.step(**inputs)
    assert (vm.policy, vm.policy_choice.costs) == ("msps", "built")
    free = tvm_dtr.VirtualMachine(program)
    assert (free.stats["policy"], free.stats["predicted_slowdown"]) == ("dtr-eq", None)


def test_a_new_budget_is_chosen_for_anew(program):
    inputs = synthetic_inputs(program, seed=0)
    vm = tvm_dtr.VirtualMachine(program, memory_budget="80%")
    for _ in range(3):
        vm.step(**inputs)
    vm.set_budget("60%")
    vm.step(**inputs)
    assert vm.policy == best_by_the_last_step(program, vm)["policy"]


# Costs under which the order of the policies changes: what counts is the costs, and the same ones
# give the same choice.
def test_the_choice_follows_the_costs(program):
    names = [kernel.name for kernel in program.graph.kernels]
    peak = program.unbudgeted_peak_bytes
    reasons = []
    for seed in (1, 1, 2, 3):
        random = np.random.default_rng(seed)
        costs = dict(zip(names, 10.0 ** random.uniform(3, 7, len(names)), strict=True))
        choice, graph = AutoPolicy(program, peak // 2, 0, 10.0).after_step(costs)
        assert [kernel.cost_ns for kernel in graph.kernels] == list(costs.values())
        assert choice.costs == "measured"
        reasons.append(choice.reason())
    assert reasons[0] == reasons[1]
    assert len(set(reasons)) == 3
