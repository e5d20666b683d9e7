"""checkmate and checkmate-lp: optimal rematerialization by integer programming (Jain et al.,
Checkmate, MLSys 2020), with HiGHS.

In stage t, which ends with the first computation of op t, R[t, v] says whether op v is computed and
S[t, v] whether its results are held from the stage before (section 4.2). FREE[t, u, k] says whether
u goes once k has run in stage t, U[t, k] is the memory in use while k runs (sections 4.3 to 4.6).
checkmate-lp solves the relaxation, rounds S and computes what R then must be (section 5.3).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .graph import PlanGraph
from .schedule import Schedule, best_within, of_positions
from .solvers import (
    in_stages,
    kept_positions,
    output_bytes,
    recomputations,
    refuse_unfinished,
    refuse_unsolved,
    searched,
    solver_module,
)
from .watch import SearchWatch, StoppedError

_THRESHOLDS = (0.3, 0.4, 0.5, 0.6, 0.7, 0.9)
_ALLOWANCES = (1.0, 0.9, 0.8)  # of the budget, for the relaxation: rounding adds memory


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
        InfeasibleError; UsageError: highspy is not installed.
    """
    highspy = solver_module("highspy", "checkmate")
    watch = SearchWatch(time_limit, graph.own_cost, progress)

    def solve(start: Schedule | None) -> tuple[list[Schedule], float]:
        return _solved(highspy, graph, budget, seed, start, watch)

    return searched(graph, "checkmate", budget, watch, seed, solve)


def _solved(
    highspy: Any,
    graph: PlanGraph,
    budget: int,
    seed: int,
    start: Schedule | None,
    watch: SearchWatch,
) -> tuple[list[Schedule], float]:
    """What the solver finds, and its lower bound on the cost. Raises StoppedError."""
    model = _Model(graph, budget, watch)
    solver = model.solver(highspy, integer=True)
    watch.check()
    solver.setOptionValue("random_seed", seed % 2**31)
    if start is not None:
        _start_from(highspy, solver, model, recomputations(graph, start))
    _run(solver, watch)
    info = solver.getInfo()
    bound = graph.own_cost * (1 + max(info.mip_dual_bound, 0.0))
    found = []
    if info.primal_solution_status == 2:
        values = np.array(solver.getSolution().col_value)
        found.append(of_positions(graph, "checkmate", model.sequence(values), budget))
    return found, bound if np.isfinite(bound) else graph.own_cost


def _run(solver: Any, watch: SearchWatch) -> None:
    solver.setOptionValue("time_limit", max(watch.left, 0.1))
    solver.HandleUserInterrupt = True
    watch.run(solver.run, solver.cancelSolve)


def plan_relaxed(
    graph: PlanGraph,
    budget: int,
    *,
    time_limit: float = 10.0,
    seed: int = 0,
    progress: Callable[..., object] | None = None,
) -> Schedule:
    """Two-phase rounding of the linear relaxation, for several thresholds and allowances.

    Raises:
        InfeasibleError; UsageError: highspy is not installed.
    """
    highspy = solver_module("highspy", "checkmate-lp")
    watch = SearchWatch(time_limit, graph.own_cost, progress)
    found: list[Schedule] = []
    try:
        for allowance in _ALLOWANCES:
            room = int(graph.pinned_bytes + allowance * (budget - graph.pinned_bytes))
            found += _rounded(highspy, graph, budget, room, watch)
    except StoppedError:
        if not found:
            refuse_unfinished(graph, "checkmate-lp", budget, time_limit)
    if not found:
        refuse_unsolved(graph, "checkmate-lp", budget, time_limit)
    return best_within(graph, "checkmate-lp", found, budget)


def _rounded(
    highspy: Any, graph: PlanGraph, budget: int, room: int, watch: SearchWatch
) -> list[Schedule]:
    """The relaxation within ``room`` bytes, rounded by each threshold. Raises StoppedError."""
    model = _Model(graph, room, watch)
    solver = model.solver(highspy, integer=False)
    watch.check()
    _run(solver, watch)
    if solver.getInfo().primal_solution_status != 2:
        watch.check()  # cut off, or is there none?
        return []
    values = np.array(solver.getSolution().col_value)
    orders = [model.rounded(values, threshold) for threshold in _THRESHOLDS]
    return [of_positions(graph, "checkmate-lp", order, budget) for order in orders]


def _silent(highspy: Any) -> Any:
    """A solver that does not even print its banner, as it does where it is silenced when made."""

    class Silent(highspy.Highs):
        def enableCallbacks(self) -> None:
            self.silent()
            super().enableCallbacks()

    return Silent()


def _start_from(highspy: Any, solver: Any, model: _Model, events: set[tuple[int, int]]) -> None:
    """Gives the solver R; it finds the rest."""
    chosen = [(model.r[key], float(key in events)) for key in model.r]
    if chosen:
        columns = np.array([column for column, _ in chosen], dtype=np.int32)
        solver.setSolution(len(chosen), columns, np.array([value for _, value in chosen]))


class _Model:
    """Columns and rows; the columns of R[t, t] = 1 and of S at the end are constants."""

    def __init__(self, graph: PlanGraph, budget: int, watch: SearchWatch) -> None:
        self.graph, self.n = graph, len(graph.ops)
        self.size = output_bytes(graph)
        self.unit = float(max(max(self.size, default=1), 1))
        self.room = (budget - graph.pinned_bytes) / self.unit
        self.kept = kept_positions(graph)
        self.users: list[list[int]] = [[] for _ in graph.ops]
        for position, producers in enumerate(graph.predecessors):
            for producer in producers:
                self.users[producer].append(position)
        self.costs: list[float] = []
        self.upper: list[float] = []
        self.integer: list[bool] = []
        self.rows: list[tuple[list[tuple[int, float]], float, float]] = []
        self.r, self.s, self.free = {}, {}, {}  # type: ignore[var-annotated]
        self._columns()
        self._dependencies()
        for stage in range(self.n):
            watch.check()  # a stage is linear in ops and edges: all of them take long
            self._stage_memory(stage)

    def _column(self, cost: float = 0.0, upper: float = 1.0, integer: bool = False) -> int:
        self.costs.append(cost)
        self.upper.append(upper)
        self.integer.append(integer)
        return len(self.costs) - 1

    def _columns(self) -> None:
        own = max(self.graph.own_cost, 1e-300)
        for t in range(self.n):
            for v in range(t):
                allowed = t <= self.graph.ops[v].last_rerun
                cost = self.graph.ops[v].cost / own
                self.r[t, v] = self._column(cost, float(allowed), integer=True)
                self.s[t, v] = self._column(integer=True)

    def _row(self, terms: list[tuple[Any, float]], lower: float, upper: float) -> None:
        """A term's first is a column, or a constant as a float."""
        columns = [(column, factor) for column, factor in terms if isinstance(column, int)]
        constant = sum(c * f for c, f in terms if isinstance(c, float))
        self.rows.append((columns, lower - constant, upper - constant))

    def _r(self, t: int, v: int) -> Any:
        return 1.0 if t == v else self.r[t, v]

    def _s(self, t: int, v: int) -> Any:
        if t == self.n:
            return float(v in self.kept)
        return self.s[t, v] if v < t else 0.0

    def _dependencies(self) -> None:
        inf = float("inf")
        for t in range(self.n):
            for v in range(t + 1):
                for u in self.graph.predecessors[v]:
                    terms = [(self._r(t, u), 1.0), (self._s(t, u), 1.0), (self._r(t, v), -1.0)]
                    self._row(terms, 0.0, inf)
                if v < t or t + 1 == self.n:
                    terms = [(self._r(t, v), 1.0), (self._s(t, v), 1.0)]
                    self._row([*terms, (self._s(t + 1, v), -1.0)], 0.0, inf)

    def _stage_memory(self, t: int) -> None:
        used: list[tuple[Any, float]] = [
            (self._s(t, v), self.size[v] / self.unit) for v in range(t)
        ]
        for k in range(t + 1):
            now = self._column(upper=self.room)
            ran = self._r(t, k)
            size = self.size[k] / self.unit
            self._row([*used, (ran, size), (now, -1.0)], 0.0, 0.0)
            workspace = self.graph.ops[k].workspace_bytes / self.unit
            if workspace > 0:
                self._row([(now, 1.0), (ran, workspace)], -float("inf"), self.room)
            used = [(now, 1.0)]
            for u in [*self.graph.predecessors[k], k]:
                used.append((self._freed(t, u, k), -self.size[u] / self.unit))

    def _freed(self, t: int, u: int, k: int) -> int:
        """FREE[t, u, k] = R[t, k] and not S[t + 1, u] and no later user runs in the stage."""
        later = [j for j in self.users[u] if k < j <= t]
        free = self._column(integer=True)
        hazards = [(self._r(t, k), -1.0), (self._s(t + 1, u), 1.0)]
        hazards += [(self._r(t, j), 1.0) for j in later]
        # hazards + 1 is the number of reasons not to free it
        self._row([*hazards, (free, 1.0)], 0.0, float("inf"))
        most = 2.0 + len(later)
        self._row([*hazards, (free, most)], -float("inf"), most - 1.0)
        return free

    def solver(self, highspy: Any, integer: bool) -> Any:
        lp = highspy.HighsLp()
        lp.num_col_, lp.num_row_ = len(self.costs), len(self.rows)
        lp.col_cost_, lp.col_lower_ = np.array(self.costs), np.zeros(len(self.costs))
        lp.col_upper_ = np.array(self.upper)
        lp.row_lower_ = np.array([row[1] for row in self.rows])
        lp.row_upper_ = np.array([row[2] for row in self.rows])
        lp.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
        lp.a_matrix_.start_ = np.cumsum([0, *(len(row[0]) for row in self.rows)])
        lp.a_matrix_.index_ = np.array([c for row in self.rows for c, _ in row[0]], dtype=np.int32)
        lp.a_matrix_.value_ = np.array([f for row in self.rows for _, f in row[0]])
        if integer:
            kinds = highspy.HighsVarType.kContinuous, highspy.HighsVarType.kInteger
            lp.integrality_ = [kinds[whole] for whole in self.integer]
        solver = _silent(highspy)
        solver.passModel(lp)
        return solver

    def sequence(self, values: np.ndarray) -> list[int]:
        return in_stages(self.graph, {key for key, c in self.r.items() if values[c] > 0.5})

    def rounded(self, values: np.ndarray, threshold: float) -> list[int]:
        """S rounded; R the least that makes it so."""
        held = {key for key, c in self.s.items() if values[c] >= threshold}
        events: set[tuple[int, int]] = set()
        before: set[int] = set()
        for t in range(self.n):
            has = {v for v in before if (t, v) in held}
            wanted = [t, *(v for v in range(t) if (t + 1, v) in held)]
            if t + 1 == self.n:
                wanted += sorted(self.kept)
            computed: set[int] = set()
            while wanted:
                v = wanted.pop()
                if v in has or v in computed:
                    continue
                computed.add(v)
                wanted += self.graph.predecessors[v]
            events |= {(t, v) for v in computed if v < t}
            before = has | computed
        return in_stages(self.graph, events)
