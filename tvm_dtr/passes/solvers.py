"""What the planners with a solver share: the optional packages, a warm start, stages."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from importlib import import_module
from typing import Any, NoReturn

from ..budget import format_bytes
from ..errors import UsageError
from . import anneal
from .graph import PlanGraph
from .schedule import InfeasibleError, Schedule, of_sequence, refuse
from .watch import SearchWatch, StoppedError

_WARM_START_SHARE = 0.2  # of the time limit
_WARM_START_SECONDS = 10.0


def solver_module(name: str, method: str) -> Any:
    """The optional module ``name``.

    Raises:
        UsageError: it is not installed.
    """
    try:
        return import_module(name)
    except ImportError:
        package = name.partition(".")[0]
        raise UsageError(
            f"{method} needs the package {package}: pip install 'tvm-dtr[solvers]'"
        ) from None


def warm_start(graph: PlanGraph, budget: int, watch: SearchWatch, seed: int) -> Schedule | None:
    """The annealer's schedule in the graph's own order, if it finds one."""
    seconds = min(_WARM_START_SHARE * watch.time_limit, _WARM_START_SECONDS)

    def progress(_: float, cost: float | None, bound: float) -> bool:
        return watch.report(cost, bound)

    try:
        return anneal.plan(
            graph, budget, time_limit=seconds, seed=seed, free_order=False, progress=progress
        )
    except InfeasibleError:
        return None


def searched(
    graph: PlanGraph,
    method: str,
    budget: int,
    watch: SearchWatch,
    seed: int,
    solve: Callable[[Schedule | None], tuple[list[Schedule], float]],
) -> Schedule:
    """The best of the warm start and of what ``solve`` finds, with the lower bound that it proves.

    ``solve`` takes the warm start and may raise StoppedError: setting up its model alone may take
    longer than there is time. Then the warm start is the answer.

    Raises:
        InfeasibleError.
    """
    start = warm_start(graph, budget, watch, seed)
    found, bound = [] if start is None else [start], graph.own_cost
    with contextlib.suppress(StoppedError):
        more, bound = solve(start)
        found = [schedule for schedule in found + more if schedule.peak_bytes <= budget]
        if not found and watch.left > 0:
            refuse_unsolved(graph, method, budget, watch.time_limit)
    if not found:
        refuse_unfinished(graph, method, budget, watch.time_limit)
    best = min(found, key=lambda schedule: schedule.cost)
    bound = min(bound, best.cost)
    watch.report(best.cost, bound)
    return of_sequence(graph, method, best.sequence, budget, bound)


def recomputations(graph: PlanGraph, schedule: Schedule) -> set[tuple[int, int]]:
    """(stage, position) of each op that a schedule in the graph's order computes again."""
    place = {op.id: p for p, op in enumerate(graph.ops)}
    events, stage = set(), 0
    for index in schedule.sequence:
        if place[index] == stage:
            stage += 1
        else:
            events.add((stage, place[index]))
    return events


def in_stages(graph: PlanGraph, events: set[tuple[int, int]]) -> list[int]:
    """Positions in the order to run: each stage's recomputations, then its op."""
    again: dict[int, list[int]] = {}
    for stage, position in sorted(events):
        again.setdefault(stage, []).append(position)
    return [p for stage in range(len(graph.ops)) for p in [*again.get(stage, []), stage]]


def output_bytes(graph: PlanGraph) -> list[int]:
    """By position: of all that the op fills."""
    return [sum(graph.bytes[s] for s in op.outputs) for op in graph.ops]


def kept_positions(graph: PlanGraph) -> set[int]:
    """Positions of ops whose results are handed out at the end."""
    return {graph.maker[s] for s in graph.kept}


def refuse_unfinished(graph: PlanGraph, method: str, budget: int, time_limit: float) -> NoReturn:
    """Raises InfeasibleError: nothing was found in time, which says nothing about the budget."""
    raise InfeasibleError(
        f"{method} found no plan for {graph.name} within {format_bytes(budget)} ({budget} bytes) "
        f"in {time_limit:g} s, for {len(graph.ops)} ops are many for it: give it more time "
        "(--time-limit), or use anneal",
        budget_bytes=budget,
        needed_budget_bytes=graph.unbudgeted_peak_bytes,
    )


def refuse_unsolved(graph: PlanGraph, method: str, budget: int, time_limit: float) -> NoReturn:
    """Raises InfeasibleError, with the smallest budget that the annealer reaches."""
    try:
        anneal.plan(graph, budget, time_limit=min(time_limit, 2.0), free_order=False)
    except InfeasibleError as error:
        refuse(graph, method, budget, error.needed_budget_bytes)
    refuse(graph, method, budget, graph.unbudgeted_peak_bytes)
