"""dtr: what the runtime decides online, recorded as a schedule (Kirisame et al., ICLR 2021)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..replay import AUTO_POLICIES
from .graph import PlanGraph
from .schedule import Schedule, best_within, of_sequence, refuse

_THRASH_LIMIT = 10.0


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

    That frees no later than the runtime did, so the schedule needs no more memory than the replay.

    Raises:
        InfeasibleError.
    """
    found = recorded(graph, "dtr", budget, seed, policies)
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
