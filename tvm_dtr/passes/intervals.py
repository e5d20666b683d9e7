"""intervals: retention intervals by constraint programming (Moccasin; Bartan et al., ICML 2023).

Each op has up to _COPIES retention intervals of its results: from a computation to their last use.
The first starts with its first computation, the others in some later stage; an op's computation
must lie in an interval of each op that it reads; bytes in intervals are a cumulative resource.
Solved by CP-SAT of OR-Tools.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .graph import PlanGraph
from .schedule import Schedule, of_positions
from .solvers import (
    in_stages,
    kept_positions,
    output_bytes,
    recomputations,
    searched,
    solver_module,
)
from .watch import SearchWatch

_COPIES = 3
_COST_STEPS = 10**7  # costs as integers: shares of the own cost


def plan(
    graph: PlanGraph,
    budget: int,
    *,
    time_limit: float = 10.0,
    seed: int = 0,
    progress: Callable[[float, float | None, float], object] | None = None,
) -> Schedule:
    """The best schedule found in time, in the graph's order; starts from the annealer's.

    ``progress`` is called with (seconds, cost of the best so far, lower bound on the cost).

    Raises:
        InfeasibleError; UsageError: OR-Tools is not installed.
    """
    cp_model = solver_module("ortools.sat.python.cp_model", "intervals")
    watch = SearchWatch(time_limit, graph.own_cost, progress)

    def solve(start: Schedule | None) -> tuple[list[Schedule], float]:
        return _solved(cp_model, graph, budget, seed, start, watch)

    return searched(graph, "intervals", budget, watch, seed, solve)


def _solved(
    cp_model: Any,
    graph: PlanGraph,
    budget: int,
    seed: int,
    start: Schedule | None,
    watch: SearchWatch,
) -> tuple[list[Schedule], float]:
    """What the solver finds, and its lower bound on the cost. Raises StoppedError."""
    model = _Model(cp_model, graph, budget, watch)
    if start is not None:
        model.hint(recomputations(graph, start))
    watch.check()
    solver = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds = max(watch.left, 0.1)
    solver.parameters.random_seed = seed % 2**31
    callback = _callback(cp_model, graph, watch)
    status = watch.run(lambda: solver.solve(model.model, callback), solver.stop_search)
    bound = graph.own_cost * (1 + max(solver.best_objective_bound, 0.0) / _COST_STEPS)
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return [], bound
    return [of_positions(graph, "intervals", model.solution(solver), budget)], bound


class _Model:
    def __init__(self, cp_model: Any, graph: PlanGraph, budget: int, watch: SearchWatch) -> None:
        self.watch, self.graph, self.n = watch, graph, len(graph.ops)
        self.cp_model, self.model = cp_model, cp_model.CpModel()
        self.end = self._event(self.n, 0)  # of time
        self.stage_of: dict[int, int] = {
            self._event(stage, p): stage for stage in range(self.n) for p in range(stage + 1)
        }
        self.copies = [self._copies(position) for position in range(self.n)]
        self._precedences()
        self._memory(budget)
        scale = _COST_STEPS / max(graph.own_cost, 1e-300)
        self.model.minimize(
            sum(
                round(graph.ops[p].cost * scale) * active
                for p, copies in enumerate(self.copies)
                for active, _, _, _ in copies[1:]
            )
        )

    @staticmethod
    def _event(stage: int, position: int) -> int:
        return stage * (stage + 1) // 2 + position

    def _copies(self, position: int) -> list[tuple[Any, Any, Any, Any]]:
        """(active, start, end, interval) of each retention interval."""
        self.watch.check()
        model, first = self.model, self._event(position, position)
        end = model.new_int_var(first + 1, self.end, "")
        interval = model.new_interval_var(first, end - first, end, "")
        copies: list[tuple[Any, Any, Any, Any]] = [(1, first, end, interval)]
        last = min(self.graph.ops[position].last_rerun, self.n - 1)
        stages = [self._event(stage, position) for stage in range(position + 1, last + 1)]
        for _ in range(_COPIES - 1 if stages else 0):
            active = model.new_bool_var("")
            domain = self.cp_model.Domain.from_values(stages)
            start = model.new_int_var_from_domain(domain, "")
            end = model.new_int_var(0, self.end, "")
            size = model.new_int_var(1, self.end, "")
            interval = model.new_optional_interval_var(start, size, end, active, "")
            model.add(start >= copies[-1][2]).only_enforce_if(active)
            if len(copies) > 1:
                model.add_implication(active, copies[-1][0])
            copies.append((active, start, end, interval))
        return copies

    def _precedences(self) -> None:
        for position in range(self.n):
            self.watch.check()
            for producer in self.graph.predecessors[position]:
                for active, start, _, _ in self.copies[position]:
                    self._inside(active, start, producer)
        for position in kept_positions(self.graph):
            self._inside(1, self.end - 1, position)

    def _inside(self, active: Any, start: Any, producer: int) -> None:
        """If active, ``start`` lies in an active interval of the producer."""
        choices = []
        for held, begin, end, _ in self.copies[producer]:
            chosen = self.model.new_bool_var("")
            self.model.add(begin <= start).only_enforce_if(chosen)
            self.model.add(end >= start + 1).only_enforce_if(chosen)
            if not isinstance(held, int):  # the first one is always there
                self.model.add_implication(chosen, held)
            choices.append(chosen)
        self.model.add(sum(choices) >= active)

    def _memory(self, budget: int) -> None:
        intervals, demands = [], []
        for position, size in enumerate(output_bytes(self.graph)):
            workspace = self.graph.ops[position].workspace_bytes
            for active, start, _, interval in self.copies[position]:
                if size > 0:
                    intervals.append(interval)
                    demands.append(size)
                if workspace > 0:
                    intervals.append(
                        self.model.new_optional_fixed_size_interval_var(start, 1, active, "")
                    )
                    demands.append(workspace)
        self.model.add_cumulative(intervals, demands, max(budget - self.graph.pinned_bytes, 0))

    def hint(self, events: set[tuple[int, int]]) -> None:
        """A solution's recomputations; times of ends are left to the solver."""
        by_position: dict[int, list[int]] = {}
        for stage, position in sorted(events):
            by_position.setdefault(position, []).append(self._event(stage, position))
        for position, copies in enumerate(self.copies):
            starts = by_position.get(position, [])
            for index, (active, start, _, _) in enumerate(copies[1:]):
                self.model.add_hint(active, index < len(starts))
                if index < len(starts):
                    self.model.add_hint(start, starts[index])

    def solution(self, solver: Any) -> list[int]:
        events = {
            (self.stage_of[solver.value(start)], position)
            for position, copies in enumerate(self.copies)
            for active, start, _, _ in copies[1:]
            if solver.value(active)
        }
        return in_stages(self.graph, events)


def _callback(cp_model: Any, graph: PlanGraph, watch: SearchWatch) -> Any:
    def cost(objective: float) -> float:
        return graph.own_cost * (1 + objective / _COST_STEPS)

    class Callback(cp_model.CpSolverSolutionCallback):
        def on_solution_callback(self) -> None:
            watch.report(cost(self.objective_value), cost(max(self.best_objective_bound, 0.0)))

    return Callback()
