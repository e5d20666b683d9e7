"""knapsack: which forward results to save for the backward pass, as PyTorch's partitioner.

torch.compile's min-cut partitioner with an activation memory budget solves a 0/1 knapsack: items
are forward results that the backward pass could compute again, weights their bytes, values the
time to compute them; what is saved may weigh so much (torch._functorch, dp_knapsack with sizes in
steps). What is not saved is computed again in the backward pass, once, right before its first use.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from .checkpoints import forward_positions, with_checkpoints
from .graph import PlanGraph
from .schedule import Schedule, best_within, of_positions

_SIZE_STEPS = 2000  # of the table; bytes are rounded up to these
_BUDGETS = 16  # knapsacks tried, as shares of all


def plan(
    graph: PlanGraph,
    budget: int,
    *,
    time_limit: float = 10.0,
    seed: int = 0,
    progress: Callable[..., object] | None = None,
) -> Schedule:
    """The cheapest of the knapsacks of growing size whose schedule stays within the budget.

    Raises:
        InfeasibleError, NotPlannableError.
    """
    forward = forward_positions(graph, "knapsack")
    size = {p: sum(graph.bytes[s] for s in graph.ops[p].outputs) for p in forward}
    unit = max(1, -(-sum(size.values()) // _SIZE_STEPS))
    weights = [-(-size[p] // unit) for p in forward]
    values = [graph.ops[p].cost for p in forward]
    choose = _knapsack(weights, values, sum(weights))
    found, seen = [], set()
    for step in range(_BUDGETS + 1):
        saved = frozenset(forward[i] for i in choose(sum(weights) * step // _BUDGETS))
        if saved in seen:
            continue
        seen.add(saved)
        order = with_checkpoints(graph, forward, set(saved), whole_segments=False)
        found.append(of_positions(graph, "knapsack", order, budget))
    return best_within(graph, "knapsack", found, budget)


def _knapsack(weights: list[int], values: list[float], most: int) -> Callable[[int], list[int]]:
    """A function from a capacity to the indices of the items that are worth most within it."""
    best = np.zeros(most + 1)
    taken = np.zeros((len(weights), most + 1), dtype=bool)
    for index, (weight, value) in enumerate(zip(weights, values, strict=True)):
        with_item = np.full(most + 1, -1.0)
        with_item[weight:] = best[: most + 1 - weight] + value
        taken[index] = with_item > best
        best = np.maximum(best, with_item)

    def choose(capacity: int) -> list[int]:
        chosen = []
        for index in reversed(range(len(weights))):
            if taken[index, capacity]:
                chosen.append(index)
                capacity -= weights[index]
        return chosen

    return choose
