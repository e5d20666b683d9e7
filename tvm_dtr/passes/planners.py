"""The planners by name, and tables of what they find."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ..budget import parse_budget
from ..errors import BudgetError, UsageError
from . import anneal, checkmate, chen, intervals, knapsack, online, revolve
from .graph import NotPlannableError, PlanGraph
from .schedule import Schedule

Planner = Callable[..., Schedule]
PLANNERS: dict[str, Planner] = {
    "chen-sqrt": chen.plan_sqrt,
    "chen-greedy": chen.plan_greedy,
    "revolve": revolve.plan,
    "knapsack": knapsack.plan,
    "dtr": online.plan,
    "anneal": anneal.plan,
    "checkmate": checkmate.plan,
    "checkmate-lp": checkmate.plan_relaxed,
    "intervals": intervals.plan,
}
WITH_SOLVER = ("checkmate", "checkmate-lp", "intervals")  # the extra tvm-dtr[solvers]
DEFAULT_METHODS = tuple(method for method in PLANNERS if method not in WITH_SOLVER)


def check_methods(methods: Iterable[str]) -> None:
    """Raises UsageError for an unknown planner."""
    for method in methods:
        if method not in PLANNERS:
            raise UsageError(f"unknown planner '{method}': use some of {', '.join(PLANNERS)}")


def plan(
    graph: PlanGraph,
    budget: int,
    method: str = "anneal",
    *,
    time_limit: float = 10.0,
    seed: int = 0,
    progress: Callable[..., object] | None = None,
) -> Schedule:
    """A schedule that stays within ``budget`` bytes.

    Raises:
        UsageError: an unknown planner, or one whose solver is not installed.
        InfeasibleError: the planner found none; names the smallest budget that it can reach.
        NotPlannableError: the graph is of no kind that the planner takes.
    """
    check_methods([method])
    return PLANNERS[method](graph, budget, time_limit=time_limit, seed=seed, progress=progress)


def plan_rows(
    graph: PlanGraph,
    methods: Sequence[str] = DEFAULT_METHODS,
    budgets: Iterable[str | int] = ("50%",),
    *,
    time_limit: float = 10.0,
    seed: int = 0,
    progress: Callable[[int, int], object] | None = None,
    keep: Callable[[Schedule, float], object] | None = None,
) -> list[dict[str, Any]]:
    """One row a method and budget: ``trace``, ``method``, ``budget_fraction``, ``budget_bytes``,
    ``result`` (``ok``, ``infeasible`` or ``unsupported``), ``slowdown``, ``peak_bytes``,
    ``planning_seconds``, ``recomputed_ops``, ``needed_budget_bytes``, ``lower_bound``, ``error``.
    ``keep`` is called with each schedule found and its share of the peak.

    Raises:
        UsageError: an unknown planner, a budget that does not parse.
    """
    check_methods(methods)
    sizes = [parse_budget(budget) for budget in budgets]
    if any(size.unlimited for size in sizes):
        raise UsageError("planning needs budgets: use bytes, 512MiB or 40%, not none")
    peak = graph.unbudgeted_peak_bytes
    cases = [(m, size.resolve(peak) or 0) for m in methods for size in sizes]
    rows = []
    for method, budget in cases:
        row, schedule = plan_row(graph, method, budget, time_limit, seed)
        rows.append(row)
        if schedule is not None and keep is not None:
            keep(schedule, row["budget_fraction"])
        if progress is not None:
            progress(len(rows), len(cases))
    return rows


def plan_row(
    graph: PlanGraph,
    method: str,
    budget: int,
    time_limit: float,
    seed: int,
    raising: bool = False,
) -> tuple[dict[str, Any], Schedule | None]:
    """One row of plan_rows and its schedule, if there is one; ``raising``: or its error."""
    started = time.perf_counter()
    schedule, error = None, None
    try:
        schedule = plan(graph, budget, method, time_limit=time_limit, seed=seed)
    except (BudgetError, NotPlannableError) as failure:
        if raising:
            raise
        error = failure
    result = "ok" if schedule else "infeasible" if isinstance(error, BudgetError) else "unsupported"
    row = {
        "trace": graph.name,
        "method": method,
        "budget_fraction": round(budget / max(graph.unbudgeted_peak_bytes, 1), 6),
        "budget_bytes": budget,
        "unbudgeted_peak_bytes": graph.unbudgeted_peak_bytes,
        "result": result,
        "slowdown": schedule and schedule.slowdown,
        "peak_bytes": schedule and schedule.peak_bytes,
        "planning_seconds": time.perf_counter() - started,
        "recomputed_ops": schedule and schedule.recomputed_ops,
        "lower_bound": schedule and schedule.lower_bound,
        "needed_budget_bytes": error.needed_budget_bytes
        if isinstance(error, BudgetError)
        else None,
        "error": None if error is None else str(error),
    }
    return row, schedule
