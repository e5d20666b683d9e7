"""dtr: what the runtime decides online, recorded as a schedule (Kirisame et al., ICLR 2021)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..replay import AUTO_POLICIES
from .graph import PlanGraph
from .schedule import Schedule, best_within, of_sequence, refuse

_THRASH_LIMIT = 10.0
# Shares of the budget that DTR is recorded under, until what it decided fits into the budget: as a
# schedule it may need more, where an update that DTR wrote in place must be written elsewhere.
_TIGHTER = (1.0, 0.97, 0.94, 0.9, 0.85, 0.8, 0.7)


def plan(
    graph: PlanGraph,
    budget: int,
    *,
    time_limit: float = 10.0,
    seed: int = 0,
    progress: Callable[..., object] | None = None,
    policies: tuple[str, ...] = AUTO_POLICIES,
) -> Schedule:
    """The computations of the best policy's replay; each storage is freed after its last use.

    Raises:
        InfeasibleError.
    """
    found: list[Schedule] = []
    for share in _TIGHTER:
        found += recorded(graph, "dtr", int(budget * share), seed, policies)
        if any(schedule.peak_bytes <= budget for schedule in found):
            break
    if not found:
        peak = graph.unbudgeted_peak_bytes
        refuse(graph, "dtr", budget, _smallest(graph, policies, budget, peak))
    return best_within(graph, "dtr", found, budget)


def recorded(
    graph: PlanGraph, method: str, budget: int, seed: int, policies: Sequence[str]
) -> list[Schedule]:
    """What each policy that gets through under the budget decides; takes one replay each."""
    found = []
    steps = 1 if graph.exact_bytes else graph.steps
    for policy in policies:
        run = graph.core.run(
            budget=budget,
            policy=policy,
            seed=seed,
            events=True,
            exact_bytes=graph.exact_bytes,
            thrash_limit=_THRASH_LIMIT,
            steps=steps,
        )
        if run["result"] == "ok":
            ops = [index for kind, index in run["events"] if kind in ("compute", "rematerialize")]
            found.append(of_sequence(graph, method, ops, budget))
    return found


def _smallest(graph: PlanGraph, policies: tuple[str, ...], fails: int, works: int) -> int:
    """Between a budget that fails and one that works, to within 0.5 % of the latter."""
    tolerance = max(works // 200, 1)
    while works - fails > tolerance:
        middle = (works + fails) // 2
        ok = any(
            graph.core.run(
                budget=middle,
                policy=policy,
                exact_bytes=graph.exact_bytes,
                thrash_limit=_THRASH_LIMIT,
            )["result"]
            == "ok"
            for policy in policies
        )
        works, fails = (middle, fails) if ok else (works, middle)
    return works
