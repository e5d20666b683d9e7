"""anneal: simulated annealing over compute sequences, in the core (src/core/plan/anneal.h)."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from .graph import PlanGraph
from .online import recorded
from .schedule import Schedule, of_sequence, refuse

_FIRST = ("dtr-eq", "dtr")  # whose recorded decisions the search starts from
_ATTEMPTS = 4  # to meet the budget to the byte, pages that blocks share included


def plan(
    graph: PlanGraph,
    budget: int,
    *,
    time_limit: float = 10.0,
    seed: int = 0,
    progress: Callable[[float, float | None, float], object] | None = None,
    starts: Sequence[Schedule] = (),
    free_order: bool = True,
) -> Schedule:
    """A schedule of little recomputation; finding one takes less than ``time_limit`` seconds.

    Args:
        progress: called with (seconds, cost of the best so far or None, lower bound on the cost);
            stops the search when it returns False.
        starts: schedules to begin with, besides what DTR's default policies decide.
        free_order: whether ops may first run in another order than the graph's.

    Raises:
        InfeasibleError.
    """
    started = time.perf_counter()
    # The planner's sizes do not know shared pages; what they miss is found out by the checker.
    plain = graph.core.anneal(
        graph.unbudgeted_peak_bytes * 2 + 1, time_limit=0.0, exact_bytes=graph.exact_bytes
    )
    margin = max(0, graph.unbudgeted_peak_bytes - plain["peak_bytes"])
    lowest = graph.unbudgeted_peak_bytes
    cheaper = [*starts, *recorded(graph, "anneal", budget, seed, _FIRST)]
    fitting = [schedule for schedule in cheaper if schedule.peak_bytes <= budget]
    fallback = min(fitting, key=lambda schedule: schedule.cost, default=None)
    if fallback is not None:
        fallback = replace(fallback, method="anneal", lower_bound=graph.own_cost)
    for attempt in range(_ATTEMPTS):
        left = time_limit - (time.perf_counter() - started)
        run = graph.core.anneal(
            max(budget - margin, 0),
            time_limit=max(left if attempt == 0 else left / 2, time_limit / 20),
            seed=seed,
            exact_bytes=graph.exact_bytes,
            starts=[schedule.sequence for schedule in cheaper],
            free_order=free_order,
            progress=_watch(progress, started, graph.own_cost),
        )
        schedule = of_sequence(graph, "anneal", run["sequence"], budget, graph.own_cost)
        lowest = min(lowest, schedule.peak_bytes)
        if schedule.peak_bytes <= budget:
            return min(schedule, fallback or schedule, key=lambda found: found.cost)
        if not run["feasible"]:
            break
        margin += schedule.peak_bytes - budget
    if fallback is not None:
        return fallback
    refuse(graph, "anneal", budget, _smallest(graph, budget, lowest, time_limit, seed))


def _watch(
    progress: Callable[[float, float | None, float], object] | None, started: float, bound: float
) -> Callable[[float, float | None], bool] | None:
    if progress is None:
        return None

    def watch(_: float, cost: float | None) -> bool:
        return progress(time.perf_counter() - started, cost, bound) is not False

    return watch


def _smallest(graph: PlanGraph, fails: int, works: int, time_limit: float, seed: int) -> int:
    """The lowest peak found on the way down from ``works``, within the time limit once more."""
    started = time.perf_counter()
    fails = max(fails, graph.lower_bound_bytes - 1)
    while works - fails > max(works // 200, 1):
        left = time_limit - (time.perf_counter() - started)
        if left <= 0:
            break
        middle = (works + fails) // 2
        run = graph.core.anneal(
            middle, time_limit=min(left, 0.2), seed=seed, exact_bytes=graph.exact_bytes
        )
        peak = of_sequence(graph, "anneal", run["sequence"], middle).peak_bytes
        works = min(works, max(peak, middle))
        if peak > middle:
            fails = middle
    return works
