"""Costs that a virtual machine's own steps had, in place of those measured when building."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from . import _core
from .replay import Choice, best_policy, replay_of, step_boundary

if TYPE_CHECKING:
    from .compile.opgraph import OpGraph
    from .program import Program

# The first step maps memory and fills caches, which costs kernels time once; the second has the
# costs that stay.
MEASURED_STEPS = 2

Costs = Mapping[str, float]  # nanoseconds a run, by kernel name


def mean_costs(names: Sequence[str], times: Any) -> dict[str, float]:
    """Mean nanoseconds of each kernel's runs; ``times``: (kernels, 2) of seconds and runs."""
    return {
        name: seconds / runs * 1e9
        for name, (seconds, runs) in zip(names, times.tolist(), strict=True)
        if runs > 0
    }


def median_costs(steps: Sequence[Costs]) -> dict[str, float]:
    """The median over several steps, for each kernel that ran in one."""
    names = dict.fromkeys(name for step in steps for name in step)
    return {n: statistics.median(step[n] for step in steps if n in step) for n in names}


def with_costs(graph: OpGraph, costs: Costs) -> OpGraph:
    """``graph`` with these costs; a kernel that has none keeps its own."""
    kernels = [replace(k, cost_ns=costs.get(k.name, k.cost_ns)) for k in graph.kernels]
    return replace(graph, kernels=kernels)


class AutoPolicy:
    """Chooses the policy anew after each of the first steps, on the graph as these measured it."""

    def __init__(
        self,
        program: Program,
        budget: int,
        seed: int,
        thrash_limit: float,
        arena: str = "paged",
    ) -> None:
        self.budget: int | None = budget
        self._program = program
        self._seed, self._thrash_limit, self._arena = seed, thrash_limit, arena
        self._boundary = step_boundary(program)
        self._steps = 0

    def set_budget(self, budget: int | None) -> None:
        """Another budget: what was chosen may not be best for it."""
        self.budget, self._steps = budget, 0

    def after_step(self, costs: Costs) -> tuple[Choice, OpGraph] | None:
        """The choice and the graph it was made on; None when it stands, or nothing would work.

        The same costs, budget and seed give the same choice.
        """
        self._steps += 1
        if self._steps > MEASURED_STEPS or self.budget is None:
            return None
        graph = with_costs(self._program.graph, costs)
        replay: _core.Replay = replay_of(graph, *self._boundary)
        choice = best_policy(replay, self.budget, self._seed, self._thrash_limit, self._arena)
        return None if choice is None else (replace(choice, costs="measured"), graph)
