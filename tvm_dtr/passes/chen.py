"""chen-sqrt and chen-greedy (Chen et al., Training Deep Nets with Sublinear Memory Cost, 2016).

Both keep some results of the forward pass as checkpoints; the backward pass computes a segment's
results again from the checkpoint before it, once, when it first needs one of them. As in the
evaluation of Checkmate (Jain et al., 2020, section 6), each is tried on the articulation points
(checkpoints only where nothing else is alive) and linearised (any forward op may be one).
"""

from __future__ import annotations

import math
from collections.abc import Callable

from .checkpoints import cut_points, forward_positions, spine, with_checkpoints
from .graph import PlanGraph
from .schedule import Schedule, best_within, of_positions

_GREEDY_SIZES = 24


def plan_sqrt(
    graph: PlanGraph,
    budget: int,
    *,
    time_limit: float = 10.0,
    seed: int = 0,
    progress: Callable[..., object] | None = None,
) -> Schedule:
    """sqrt(n) segments of equally many candidates (section 3.1); takes no account of sizes.

    Raises:
        InfeasibleError, NotPlannableError.
    """
    forward = forward_positions(graph, "chen-sqrt")
    found = []
    for candidates in (cut_points(graph, forward), spine(graph, forward)):
        length = max(1, math.ceil(math.sqrt(len(candidates))))
        found.append(_plan(graph, "chen-sqrt", forward, candidates[length - 1 :: length], budget))
    return best_within(graph, "chen-sqrt", found, budget)


def plan_greedy(
    graph: PlanGraph,
    budget: int,
    *,
    time_limit: float = 10.0,
    seed: int = 0,
    progress: Callable[..., object] | None = None,
) -> Schedule:
    """Segments of at most b bytes each (algorithm 3), for a range of b; the cheapest that fits.

    Raises:
        InfeasibleError, NotPlannableError.
    """
    forward = forward_positions(graph, "chen-greedy")
    size = {p: sum(graph.bytes[s] for s in graph.ops[p].outputs) for p in forward}
    total, largest = sum(size.values()), max(max(size.values()), 1)
    found, seen = [], set()
    for candidates in (set(cut_points(graph, forward)), set(spine(graph, forward))):
        for step in range(_GREEDY_SIZES):
            limit = largest * (max(total / largest, 1.0)) ** (step / (_GREEDY_SIZES - 1)) / 2
            checkpoints = _greedy(forward, candidates, size, limit)
            if tuple(checkpoints) not in seen:
                seen.add(tuple(checkpoints))
                found.append(_plan(graph, "chen-greedy", forward, checkpoints, budget))
    return best_within(graph, "chen-greedy", found, budget)


def _greedy(
    forward: list[int], candidates: set[int], size: dict[int, int], limit: float
) -> list[int]:
    checkpoints, held = [], 0
    for position in forward:
        held += size[position]
        if position in candidates and held > limit:
            checkpoints.append(position)
            held = 0
    return checkpoints


def _plan(
    graph: PlanGraph, method: str, forward: list[int], checkpoints: list[int], budget: int
) -> Schedule:
    order = with_checkpoints(graph, forward, set(checkpoints), whole_segments=True)
    return of_positions(graph, method, order, budget)
