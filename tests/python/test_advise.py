"""Advice: its predictions are the replay's, what it calls feasible runs, and auto is acceptable."""

import json

import pytest
from traced_run import traced_run

import tvm_dtr
from tvm_dtr import models
from tvm_dtr.advise import (
    Curve,
    Point,
    automatic_budget,
    largest_batch,
    predict,
    scaled_graph,
    slowdown_curve,
)
from tvm_dtr.cli import main
from tvm_dtr.cli.advise import profiled_step
from tvm_dtr.cli.synthetic import synthetic_inputs
from tvm_dtr.measured_costs import with_costs
from tvm_dtr.replay import replay_of, step_boundary


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    return tvm_dtr.load(traced_run(tmp_path_factory.getbasetemp())[0].with_name("r8.tdtr"))


@pytest.fixture(scope="module")
def curve(program):
    return slowdown_curve(program.replay, program.unbudgeted_peak_bytes)


def test_the_curve_goes_from_the_peak_to_the_smallest_budget(program, curve):
    assert curve.points[0].budget_bytes == program.unbudgeted_peak_bytes
    assert curve.points[0].slowdown == 1
    assert curve.points[-1].budget_bytes == curve.smallest_bytes
    assert all(point.slowdown is not None for point in curve.points)
    assert curve.points[-1].slowdown > 1


def test_predicted_feasibility_is_that_of_the_vm(program, curve):
    inputs = synthetic_inputs(program, 0)
    vm = tvm_dtr.VirtualMachine(program, memory_budget=curve.smallest_bytes)
    vm.step(**inputs)
    assert vm.stats["peak_bytes"] <= curve.smallest_bytes
    lower = program.replay.lower_bound() - 1
    assert predict(program.replay, lower).slowdown is None
    with pytest.raises(tvm_dtr.BudgetError):
        tvm_dtr.VirtualMachine(program, memory_budget=lower)


def test_measured_times_weigh_what_is_recomputed(program, curve):
    budget = curve.points[-2].budget_bytes
    ops = len(program.graph.ops)
    even = predict(program.replay, budget, [1e-3] * ops)
    assert even.slowdown == pytest.approx(1 + even.rematerializations / ops)
    slow = predict(program.replay, budget, [1e-3] * ops, step_seconds=2e-3 * ops)
    assert slow.slowdown - 1 == pytest.approx((even.slowdown - 1) / 2)
    dear = predict(program.replay, budget, [1e-3] * ops, beside=1e-3)
    assert dear.slowdown - 1 == pytest.approx(2 * (even.slowdown - 1))


def test_a_profile_has_the_time_besides_kernels_of_each_op_run_again(program, monkeypatch):
    seconds, step_seconds, _, beside = profiled_step(program)
    assert len(seconds) == len(program.graph.ops) and sum(seconds) < step_seconds
    assert 0 <= beside < step_seconds

    class Refusing(tvm_dtr.VirtualMachine):
        def __init__(self, program, memory_budget=None):
            if memory_budget is not None:
                raise tvm_dtr.BudgetError("too small", budget_bytes=memory_budget)
            super().__init__(program)

    monkeypatch.setattr(tvm_dtr, "VirtualMachine", Refusing)
    assert profiled_step(program)[-1] == 0


def test_the_policy_is_the_one_that_measured_costs_choose(program, curve):
    """As the machine does after its first steps; whether a budget works at all is known before."""
    budget = curve.points[-2].budget_bytes
    boundary = step_boundary(program)
    graph = with_costs(program.graph, {k.name: 1e6 for k in program.graph.kernels})
    measured = replay_of(graph, *boundary)
    point = predict(program.replay, budget, measured=measured)
    assert point == predict(measured, budget)
    assert point.slowdown != predict(program.replay, budget).slowdown
    lower = program.replay.lower_bound() - 1
    assert predict(program.replay, lower, measured=measured).slowdown is None


def test_the_knee_is_the_deepest_point():
    points = [Point(10 - i, s, "lru") for i, s in enumerate([1.0, 1.01, 1.02, 1.03, 2.0])]
    assert Curve(10, 6, points).knee == points[3]
    assert Curve(10, 6, points).cheapest_within(1.02) == points[2]
    assert Curve(10, 6, points[:2]).knee is None


def test_auto_is_acceptable_and_a_little_less_is_not(program):
    budget = automatic_budget(program)
    assert predict(program.replay, budget).slowdown <= 1.2
    vm = tvm_dtr.VirtualMachine(program, memory_budget="auto")
    assert vm.counters()["budget_bytes"] == budget < program.unbudgeted_peak_bytes


def test_a_scaled_graph_has_the_sizes_of_the_larger_batch():
    def built(batch):
        model = models.make("mlp", batch=batch)
        return tvm_dtr.build(model, loss="cross_entropy", optimizer=tvm_dtr.SGD(lr=0.01))

    small, large = built(4), built(8)
    fixed = {tuple(spec.shape) for spec in small.state}
    assert scaled_graph(small.graph, 4, 8, fixed).storages == large.graph.storages


def test_the_largest_batch_grows_with_memory(program):
    peak = program.unbudgeted_peak_bytes
    assert largest_batch(program, 4 * peak) > largest_batch(program, peak) >= 4
    assert largest_batch(program, 2**16) == 0


def test_the_command(program, tmp_path_factory, tmp_path, capsys):
    trace, _ = traced_run(tmp_path_factory.getbasetemp())
    rows = tmp_path / "rows.json"
    model = str(trace.with_name("r8.tdtr"))
    assert main(["advise", model, "--memory", "16MiB", "--json", str(rows)]) == 0
    printed = capsys.readouterr().out
    assert "knee" in printed and "smallest budget that works" in printed
    found = json.loads(rows.read_text())["rows"]
    assert sum(row["knee"] for row in found) == 1
    assert found[0]["largest_batch"] >= found[0]["largest_swift_batch"] > 4
    assert main(["advise", model, "--memory", "40%"]) == 2
    assert "--memory '40%' is no size" in capsys.readouterr().err
