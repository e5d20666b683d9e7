"""Static planners: schedules are valid, within budget, and as their definitions say."""

import contextlib
import itertools
import json
import sys

import pytest
from graph_chain import chain_graph
from random_graphs import random_graph

from tvm_dtr.errors import UsageError
from tvm_dtr.passes import (
    PLANNERS,
    InfeasibleError,
    NotPlannableError,
    PlanGraph,
    Schedule,
    load_graph,
    plan,
    plan_rows,
)
from tvm_dtr.passes.node_link import graph_of_node_link
from tvm_dtr.passes.revolve import uniform_steps
from tvm_dtr.passes.schedule import checked, of_sequence
from tvm_dtr.replay import replay_of


def chain(length, unit=1 << 20):
    backward = [op >= length for op in range(2 * length)]
    return PlanGraph("chain", replay_of(chain_graph(length, unit)), backward=backward)


def random_plan_graph(seed, ops=30):
    return PlanGraph(f"random{seed}", replay_of(random_graph(seed, ops)))


@pytest.mark.parametrize("seed", range(12))
def test_the_checkers_peak_is_the_runtimes(seed):
    graph = random_plan_graph(seed)
    for steps in (1, 2):
        report = graph.core.check_schedule(
            graph.core.schedule_of(graph.core.order()), steps_run=steps
        )
        replay = graph.core.run(steps=steps)
        assert report["valid"], report["problem"]
        assert (report["peak_bytes"], report["recomputed"]) == (replay["peak_bytes"], 0)
        assert report["cost"] == report["own_cost"] == replay["compute_cost"]


@pytest.mark.parametrize("seed", range(12))
def test_annealed_and_recorded_schedules_stay_within_the_budget(seed):
    graph = random_plan_graph(seed, ops=40)
    low, high = graph.lower_bound_bytes, graph.unbudgeted_peak_bytes
    for method, share in itertools.product(("anneal", "dtr"), (0.9, 0.6, 0.3)):
        budget = int(low + share * (high - low))
        try:
            schedule = plan(graph, budget, method, time_limit=0.1)
        except InfeasibleError as error:
            assert budget < error.needed_budget_bytes <= high
            continue
        assert schedule.peak_bytes <= budget
        assert checked(graph, method, schedule.steps, budget) == checked(
            graph, method, schedule.steps, budget
        )
        assert set(schedule.sequence) == set(graph.core.order())


def test_storages_are_freed_after_their_last_read():
    """Three steps and their gradients, the second step's result computed twice."""
    assert chain(3).core.schedule_of([0, 1, 2, 3, 1, 4, 5]) == [
        ("compute", 0), ("compute", 1), ("compute", 2), ("free", 2),
        ("compute", 3), ("free", 3), ("compute", 1), ("compute", 4), ("free", 2), ("free", 6),
        ("compute", 5), ("free", 1), ("free", 5),
    ]  # fmt: skip


def test_knapsack_saves_what_is_dear():
    """Convolutions cost 10, activations 1: within a tight budget only the latter run again."""
    nodes = [
        {"id": i, "cost_cpu": 10 if i % 2 == 0 else 1, "cost_ram": 100, "backward": i >= 12}
        for i in range(24)
    ]
    links = [(i - 1, i) for i in range(1, 24)] + [(23 - i, i) for i in range(12, 24)]
    data = {"nodes": nodes, "links": [{"source": a, "target": b} for a, b in set(links)]}
    graph = graph_of_node_link(data, "conv")
    schedule = plan(graph, graph.unbudgeted_peak_bytes * 7 // 10, "knapsack")
    again = [op for op in schedule.sequence if schedule.sequence.count(op) == 2]
    assert again and all(op % 2 == 1 for op in again)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda steps: steps[1:], "reads storage"),
        (lambda steps: [*steps, ("free", 10**6)], "does not exist"),
        (lambda steps: [*steps, ("free", 0)], "is pinned"),
        (lambda steps: [s for s in steps if s != ("compute", 5)], "is never computed"),
        (lambda steps: [*steps, ("free", 4)], "is not there at the end"),
        (lambda steps: [*steps, ("free", 1)], "is freed but not in memory"),
    ],
)
def test_the_checker_says_what_is_wrong(change, problem):
    graph = chain(3)
    steps = graph.core.schedule_of(graph.core.order())
    with pytest.raises(UsageError, match=problem):
        checked(graph, "hand", change(steps), 0)


def test_schedules_as_json(tmp_path):
    graph = chain(4)
    schedule = plan(graph, graph.unbudgeted_peak_bytes, "dtr")
    assert Schedule.from_json(schedule.to_json(), graph) == schedule
    with pytest.raises(UsageError, match="no schedule"):
        Schedule.from_json("{}", graph)
    other = json.loads(schedule.to_json()) | {"steps": [["compute", 1]]}
    with pytest.raises(UsageError, match="not a valid schedule"):
        Schedule.from_json(json.dumps(other), graph)


@pytest.mark.parametrize("method", [m for m in PLANNERS if m != "knapsack"])
def test_every_planner_on_a_chain(method, capfd):
    if method in ("checkmate", "checkmate-lp", "intervals"):
        pytest.importorskip("highspy")
        pytest.importorskip("ortools")
    graph = chain(10)
    budget = int(0.8 * graph.unbudgeted_peak_bytes)
    schedule = plan(graph, budget, method, time_limit=1)
    assert schedule.peak_bytes <= budget
    assert schedule.recomputed_ops > 0
    assert schedule.cost == schedule.own_cost + schedule.recomputed_ops  # unit costs
    with pytest.raises(InfeasibleError) as caught:
        plan(graph, 2 << 20, method, time_limit=0.5)
    smallest = caught.value.needed_budget_bytes
    assert (2 << 20) < smallest <= graph.unbudgeted_peak_bytes
    assert plan(graph, smallest, method, time_limit=1).peak_bytes <= smallest
    assert capfd.readouterr() == ("", "")  # solvers are talkative


@pytest.mark.parametrize("method", ["checkmate", "checkmate-lp", "intervals"])
def test_a_solver_stops_when_it_is_told(method):
    """With a limit of an hour only the answer of ``progress`` can end the search."""
    pytest.importorskip("highspy")
    pytest.importorskip("ortools")
    graph = chain(60)
    budget = int(0.4 * graph.unbudgeted_peak_bytes)
    calls = itertools.count()
    started = []

    def progress(seconds, cost, bound):
        started.append(seconds)
        return next(calls) < 5

    with contextlib.suppress(InfeasibleError):
        schedule = plan(graph, budget, method, time_limit=3600, progress=progress)
        assert schedule.peak_bytes <= budget
    assert len(started) > 5


@pytest.mark.parametrize("method", ["checkmate", "checkmate-lp"])
def test_a_model_too_large_for_its_time(method):
    """The annealer's plan, where there is one; else a refusal that does not blame the budget."""
    pytest.importorskip("highspy")
    graph = chain(120)
    budget = int(0.5 * graph.unbudgeted_peak_bytes)
    if method == "checkmate":
        assert plan(graph, budget, method, time_limit=0.3).peak_bytes <= budget
        return
    with pytest.raises(InfeasibleError, match=r"in 0\.3 s, for 240 ops are many .* use anneal"):
        plan(graph, budget, method, time_limit=0.3)


@pytest.mark.parametrize(("method", "module"), [("checkmate", "highspy"), ("intervals", "ortools")])
def test_a_missing_solver_is_named(monkeypatch, method, module):
    for name in [name for name in sys.modules if name.partition(".")[0] == module]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, module, None)  # what an import finds when it is not there
    with pytest.raises(UsageError, match=rf"{method} needs the package {module}: pip install"):
        plan(chain(3), 10**9, method)


def test_chen_sqrt_exactly():
    """Nine steps, checkpoints at 2, 5 and 8; each segment again when its reversal starts."""
    graph = chain(9)
    schedule = plan(graph, graph.unbudgeted_peak_bytes, "chen-sqrt")
    assert schedule.sequence == [*range(9), 9, 6, 7, 10, 11, 12, 3, 4, 13, 14, 15, 0, 1, 16, 17]


def test_revolve_against_checkpoint_schedules():
    """Forward steps of the published implementation on uniform chains."""
    schedules = pytest.importorskip("checkpoint_schedules")
    for steps, states in itertools.product((2, 5, 9, 14), (1, 2, 3, 5)):
        if states > steps:
            continue
        theirs = schedules.Revolve(steps, states)
        count = sum(
            action.n1 - action.n0 for action in theirs if isinstance(action, schedules.Forward)
        )
        assert uniform_steps(steps, states) == count, (steps, states)


def test_planners_of_training_steps_refuse_others():
    graph = random_plan_graph(0)
    for method in ("chen-sqrt", "chen-greedy", "revolve", "knapsack"):
        with pytest.raises(NotPlannableError, match="does not say which ops are backward"):
            plan(graph, 10**9, method)


def test_node_link_graphs(tmp_path):
    data = {
        "nodes": [{"id": i, "cost_cpu": 5, "cost_ram": 100, "backward": i > 1} for i in range(4)],
        "links": [{"source": a, "target": b} for a, b in ((0, 1), (1, 2), (0, 3), (2, 3))],
    }
    path = tmp_path / "four.json"
    path.write_text(json.dumps(data))
    graph = load_graph(path)
    assert (graph.unbudgeted_peak_bytes, graph.own_cost) == (300, 20)
    assert graph.is_backward == [False, False, True, True]
    for broken, message in (
        ({"links": [{"source": 0, "target": 9}]}, "names no node"),
        ({"links": [{"source": 0, "target": 1}, {"source": 1, "target": 0}]}, "has a cycle"),
        ({"graph": {"order": [1, 0, 2, 3]}}, "no topological order"),
        ({"nodes": [{"id": 0}], "links": []}, "has none of"),
    ):
        with pytest.raises(UsageError, match=message):
            graph_of_node_link(data | broken, "broken")


def test_rows():
    rows = plan_rows(chain(8), ["dtr", "chen-sqrt"], ["80%", "20%"])
    assert [(r["method"], r["result"]) for r in rows] == [
        ("dtr", "ok"), ("dtr", "infeasible"), ("chen-sqrt", "ok"),
        ("chen-sqrt", "infeasible"),
    ]  # fmt: skip
    assert all(r["slowdown"] >= 1 and r["peak_bytes"] <= r["budget_bytes"] for r in rows[::2])
    with pytest.raises(UsageError, match="unknown planner 'magic'"):
        plan_rows(chain(3), ["magic"])
    with pytest.raises(UsageError, match="needs budgets"):
        plan_rows(chain(3), ["dtr"], ["none"])


def test_a_sequence_is_freed_as_early_as_can_be():
    graph = chain(4)
    recomputing = of_sequence(graph, "hand", [0, 1, 2, 3, 4, 2, 5, 1, 6, 7], 0)
    assert recomputing.recomputed_ops == 2
    assert recomputing.peak_bytes < graph.unbudgeted_peak_bytes
