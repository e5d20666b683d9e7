"""Schedules on the real VM: peaks to the byte, results bit by bit; plan, freeze and compare."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest

import tvm_dtr
from tvm_dtr import models
from tvm_dtr.cli import main
from tvm_dtr.cli.synthetic import synthetic_inputs
from tvm_dtr.comparison import compare
from tvm_dtr.errors import BudgetError, UsageError
from tvm_dtr.passes import InfeasibleError, NotPlannableError, graph_of_program, plan
from tvm_dtr.passes.rewrite import planned_program
from tvm_dtr.replay import RESERVE_BYTES, best_policy
from tvm_dtr.verify import StockVM

METHODS = ("chen-sqrt", "chen-greedy", "revolve", "knapsack", "dtr", "anneal")


@pytest.fixture(scope="module")
def program():
    model = models.make("resnet14", batch=8)
    return tvm_dtr.build(model, loss="cross_entropy", optimizer=tvm_dtr.SGD(0.01))


@pytest.fixture(scope="module")
def inputs(program):
    return synthetic_inputs(program, 0)


@pytest.fixture(scope="module")
def stock_steps(program, inputs):
    vm = StockVM(program)
    return [vm.step(**inputs) for _ in range(4)], vm.parameters


def equal(ours, theirs):
    return ours.keys() == theirs.keys() and all(
        ours[name].tobytes() == theirs[name].tobytes() for name in ours
    )


@pytest.mark.parametrize("method", METHODS)
def test_peak_to_the_byte_and_results_bit_by_bit(program, inputs, stock_steps, method):
    graph = graph_of_program(program)
    found = 0
    for share in (0.9, 0.5):
        budget = int(share * program.unbudgeted_peak_bytes)
        try:
            schedule = plan(graph, budget, method, time_limit=1)
        except InfeasibleError:
            continue
        found += 1
        vm = tvm_dtr.VirtualMachine(planned_program(program, schedule), memory_budget=budget)
        for step, expected in enumerate(stock_steps[0]):
            assert equal(vm.step(**inputs), expected)
            report = graph.core.check_schedule(schedule.steps, steps_run=step + 1)
            assert vm.counters()["peak_active_bytes"] == report["peak_bytes"] <= budget
            assert vm.stats["evictions"] == 0
            assert vm.counters()["overwrites"] == len(program.graph.overwrites) > 0
            assert vm.counters()["calls"] == len(schedule.sequence)
        assert equal(dict(vm.parameters), stock_steps[1])
    assert found > 0


def test_policy_plan(program, inputs, stock_steps):
    vm = tvm_dtr.VirtualMachine(program, memory_budget="60%", policy="plan:dtr")
    outputs = [vm.step(**inputs)]
    assert vm.stats["planner"] is None
    assert vm.wait_for_plan()
    schedule = vm.planned_steps.schedule
    for _ in range(3):
        outputs.append(vm.step(**inputs))
        assert (vm.stats["planner"], vm.stats["evictions"]) == ("dtr", 0)
        assert vm.stats["rematerializations"] == schedule.recomputed_ops > 0
        assert vm.stats["peak_bytes"] <= vm.stats["budget_bytes"]
    assert all(map(equal, outputs, stock_steps[0]))
    assert equal(dict(vm.parameters), stock_steps[1])


def test_a_step_that_deviates_goes_back_to_dtr(program, inputs, stock_steps):
    vm = tvm_dtr.VirtualMachine(program, memory_budget="80%", policy="plan:dtr")
    vm.step(**inputs)
    assert vm.wait_for_plan()
    vm.set_budget("60%")  # less than the schedule needs
    outputs = vm.step(**inputs)
    assert equal(outputs, stock_steps[0][1])
    assert vm.planned_steps.schedule is None
    assert "deviated" in vm.planned_steps.reason
    assert equal(vm.step(**inputs), stock_steps[0][2])
    assert vm.stats["planner"] is None


ENDS_EARLY = """
import sys, tvm_dtr
from tvm_dtr.cli.synthetic import synthetic_inputs
program = tvm_dtr.load(sys.argv[1])
vm = tvm_dtr.VirtualMachine(program, memory_budget="80%", policy=sys.argv[2])
vm.planned_steps.time_limit = 3600
vm.step(**synthetic_inputs(program, 0))
"""


@pytest.mark.parametrize("policy", ["plan", "plan:intervals", "plan:checkmate"])
def test_a_process_may_end_before_its_planner(program, tmp_path, policy):
    if policy != "plan":
        pytest.importorskip("highspy")
        pytest.importorskip("ortools")
    program.save(tmp_path / "p.tdtr")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", ENDS_EARLY, str(tmp_path / "p.tdtr"), policy]
    assert subprocess.run(command, env=environment, timeout=600).returncode == 0


def test_unknown_planner(program):
    with pytest.raises(UsageError, match="unknown planner 'magic'"):
        tvm_dtr.VirtualMachine(program, memory_budget="60%", policy="plan:magic")
    with pytest.raises(UsageError, match=r"plans for programs of tvm_dtr\.build"):
        tvm_dtr.VirtualMachine(program.executable, memory_budget=10**9, policy="plan")


def test_frozen_program_on_the_stock_vm(program, inputs, stock_steps, tmp_path, capsys):
    path, out, rows = tmp_path / "net.tdtr", tmp_path / "frozen.tdtr", tmp_path / "rows.json"
    program.save(path)
    options = ["--memory-budget", "70%", "--method", "dtr", "--json", str(rows)]
    assert main(["freeze", str(path), *options, "-o", str(out)]) == 0
    row = json.loads(rows.read_text())["rows"][0]
    frozen = tvm_dtr.load(out)
    assert len(frozen.graph.ops) == len(program.graph.ops) + row["recomputed_ops"]
    assert frozen.unbudgeted_peak_bytes == row["peak_bytes"] <= row["budget_bytes"]
    vm = StockVM(frozen)
    assert all(equal(vm.step(**inputs), expected) for expected in stock_steps[0])
    assert equal(vm.parameters, stock_steps[1])
    small = ["--memory-budget", "1MiB", "--time-limit", "1"]
    assert main(["freeze", str(path), *small, "-o", str(out)]) == 1
    assert "smallest budget that it can reach" in capsys.readouterr().err


def test_compare(program, tmp_path):
    methods = ("dtr-online", "knapsack", "chen-sqrt", "plan")
    rows = compare(program, budgets=["80%", "20%"], methods=methods, rounds=2, time_limit=0.5)
    assert [(r["method"], r["budget_fraction"]) for r in rows] == [
        (method, pytest.approx(share, abs=1e-4)) for share in (0.8, 0.2) for method in methods
    ]
    for row in rows[:4]:
        assert (row["result"], row["bitwise"]) == ("ok", True), row
        assert row["slowdown"] > 0 and row["predicted_slowdown"] >= 1
        assert row["peak_bytes"] <= row["budget_bytes"]
    planned = [row for row in rows if row["result"] == "ok" and row["method"] == "knapsack"]
    assert all(row["peak_bytes"] == row["predicted_peak_bytes"] for row in planned)
    assert rows[5]["result"] == "infeasible" and "can reach" in rows[5]["error"]
    from tvm_dtr.comparison_report import comma_separated, comparison_figure, markdown

    assert "| knapsack |" in markdown(rows)
    assert len(comma_separated(rows).splitlines()) == len(rows) + 1
    assert len(comparison_figure(rows).axes) == 2
    with pytest.raises(UsageError, match="unknown planner 'magic'"):
        compare(program, methods=["magic"])


def test_planned_first_where_no_policy_can_run_the_first_step(
    program, inputs, stock_steps, monkeypatch
):
    """Under a limit on recomputation between what the planner needs and what DTR does."""
    budget = program.unbudgeted_peak_bytes // 2
    online = best_policy(program.replay, budget, 0, 10.0).prediction["slowdown"]
    planned = plan(graph_of_program(program), budget - RESERVE_BYTES, time_limit=3).slowdown
    assert planned < online
    monkeypatch.setattr("tvm_dtr.planned_steps.TIME_LIMIT", 3.0)
    limit = (planned + online) / 2 - 1
    with pytest.raises(BudgetError, match="smallest budget that works"):
        tvm_dtr.VirtualMachine(program, memory_budget=budget, thrash_limit=limit)
    options = {"memory_budget": budget, "thrash_limit": limit, "policy": "plan"}
    vm = tvm_dtr.VirtualMachine(program, **options)
    for expected in stock_steps[0]:
        assert equal(vm.step(**inputs), expected)
        assert (vm.stats["planner"], vm.stats["evictions"]) == ("anneal", 0)
        assert vm.stats["peak_bytes"] <= budget
    with pytest.raises(BudgetError, match="smallest budget that works"):
        tvm_dtr.VirtualMachine(program, memory_budget="10%", policy="plan:dtr")


@pytest.fixture(scope="module")
def branching():
    model = models.early_exit(batch=2, seed=0, features=8, width=8, layers=1)
    return tvm_dtr.build(model, loss="cross_entropy", optimizer=tvm_dtr.SGD(0.01))


def test_control_flow_that_depends_on_data_is_not_planned_for(branching, tmp_path, capsys):
    with pytest.raises(NotPlannableError, match="control flow that depends on data"):
        graph_of_program(branching)
    with pytest.raises(UsageError, match=r"control flow that depends on data.* run it with auto"):
        tvm_dtr.VirtualMachine(branching, memory_budget=10**9, policy="plan")
    path = tmp_path / "branching.tdtr"
    branching.save(path)
    frozen = ["freeze", str(path), "--memory-budget", "90%", "-o", str(tmp_path / "frozen.tdtr")]
    for command in (frozen, ["plan", str(path), "--budgets", "90%"]):
        assert main(command) == 1
        assert "branching has control flow that depends on data" in capsys.readouterr().err
    assert not (tmp_path / "frozen.tdtr").exists()


def test_comparison_where_only_dtr_applies(branching, tmp_path, capsys):
    path, out = tmp_path / "branching.tdtr", tmp_path / "rows.json"
    branching.save(path)
    options = ["--budgets", "100%", "--methods", "dtr-online,anneal,plan", "--rounds", "2"]
    assert main(["compare", str(path), *options, "--json", str(out)]) == 0
    rows = json.loads(out.read_text())["rows"]
    assert [(r["method"], r["result"], r["bitwise"]) for r in rows] == [
        ("dtr-online", "ok", True), ("anneal", "unsupported", None),
        ("plan", "unsupported", None),
    ]  # fmt: skip
    assert capsys.readouterr().out.count("control flow that depends on data") == 1


def test_chen_keeps_running_statistics_beside_the_forward_pass(program):
    graph = graph_of_program(program)
    side = [op for op in graph.ops if op.id in graph.side_ops]
    assert side and all(not graph.backward[op.id] for op in side)
    assert np.mean(graph.is_backward) > 0.4
