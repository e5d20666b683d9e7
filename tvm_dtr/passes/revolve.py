"""revolve: chains (Griewank and Walther, Algorithm 799, 2000; Beaumont et al., 2019).

The forward pass is cut at its articulation points into a chain of stages. On a chain of equal
stages the split is Revolve's: with room for c states, from a stored state the next one is stored
so many steps ahead that the sum of steps run again is least. On unequal ones a dynamic programme
over (first stage, last stage, memory) decides where to store the next state, and which stages keep
all their results on the way (the recurrences of Beaumont et al., "Optimal checkpointing for
heterogeneous chains", section 4).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np

from .checkpoints import cut_points, forward_positions, spine
from .graph import NotPlannableError, PlanGraph
from .schedule import Schedule, best_within, of_positions

_MEMORY_STEPS = 60
_MOST_STAGES = 160
_KEEP_ALL = -1


def uniform_steps(steps: int, states: int) -> int:
    """Forward steps run in all to reverse a chain of ``steps`` with room for ``states`` states.

    The first state takes one place. Each step's own forward run right before its reversal counts.
    """

    @cache
    def cost(length: int, room: int) -> int:
        if length == 1:
            return 1
        if room == 1:
            return length * (length + 1) // 2
        return min(
            split + cost(length - split, room - 1) + cost(split, room) for split in range(1, length)
        )

    return cost(steps, states)


def plan(
    graph: PlanGraph,
    budget: int,
    *,
    time_limit: float = 10.0,
    seed: int = 0,
    progress: Callable[..., object] | None = None,
) -> Schedule:
    """The cheapest schedule of the dynamic programme that stays within the budget.

    Raises:
        InfeasibleError; NotPlannableError: the forward pass is no chain of two stages or more.
    """
    chain = Chain.of(graph)
    table = Table(chain)
    found = [
        of_positions(graph, "revolve", chain.emit(table, memory), budget)
        for memory in range(_MEMORY_STEPS + 1)
        if np.isfinite(table.cost[0, chain.length - 1, memory])
    ]
    return best_within(graph, "revolve", found, budget)


@dataclass
class Chain:
    """Stages of forward ops and, for each, the backward ops that come when it is reversed."""

    graph: PlanGraph
    stages: list[list[int]]
    backward: list[list[int]]

    @property
    def length(self) -> int:
        return len(self.stages)

    @staticmethod
    def of(graph: PlanGraph) -> Chain:
        forward = forward_positions(graph, "revolve")
        cuts = set(cut_points(graph, forward))
        stages: list[list[int]] = [[]]
        for position in spine(graph, forward):
            stages[-1].append(position)
            if position in cuts:
                stages.append([])
        stages = _merged([stage for stage in stages if stage])
        if len(stages) < 2:
            raise NotPlannableError(
                f"revolve works on chains: the forward pass of {graph.name} has no cut points"
            )
        inside = {p for stage in stages for p in stage}
        stages[-1] += [p for p in forward if p not in inside]
        return Chain(graph, stages, _backward_blocks(graph, stages))

    def sizes(self) -> tuple[np.ndarray, np.ndarray]:
        """Bytes of each stage's state (what the next stage reads), and of all that its backward
        pass reads of it."""
        states, everything = [], []
        for index, stage in enumerate(self.stages):
            later = set(self.stages[index + 1]) if index + 1 < self.length else set()
            outputs = [s for p in stage for s in self.graph.ops[p].outputs]
            read_later = [s for s in outputs if later.intersection(self.graph.readers[s])]
            wanted = [s for s in outputs if set(self.graph.readers[s]) - set(stage)]
            states.append(sum(self.graph.bytes[s] for s in read_later))
            everything.append(sum(self.graph.bytes[s] for s in wanted))
        return np.array(states, float), np.array(everything, float)

    def costs(self) -> np.ndarray:
        return np.array([sum(self.graph.ops[p].cost for p in stage) for stage in self.stages])

    def emit(self, table: Table, memory: int) -> list[int]:
        """Positions in the order to run."""
        sequence: list[int] = []
        ran: set[int] = set()

        def forward(stage: int) -> None:
            again = stage in ran
            ran.add(stage)
            fixed = self.graph.ops
            sequence.extend(p for p in self.stages[stage] if not again or fixed[p].last_rerun)

        pending: list[tuple[str, int, int, int]] = [("solve", 0, self.length - 1, memory)]
        while pending:
            what, first, last, room = pending.pop()
            if what == "reverse":
                sequence.extend(self.backward[first])
                continue
            choice = table.choice[first, last, room]
            if first == last:
                forward(first)
                sequence.extend(self.backward[first])
            elif choice == _KEEP_ALL:
                forward(first)
                pending.append(("reverse", first, first, 0))
                pending.append(("solve", first + 1, last, room - table.kept[first]))
            else:
                for stage in range(first, choice):
                    forward(stage)
                pending.append(("solve", first, choice - 1, room))
                pending.append(("solve", choice, last, room - table.state[choice - 1]))
        return _without_waste(self.graph, sequence)


class Table:
    """cost[first, last, memory] to run and reverse stages first..last with the state before
    ``first`` stored, in steps of memory; choice: where the next state is stored, or _KEEP_ALL."""

    def __init__(self, chain: Chain) -> None:
        states, everything = chain.sizes()
        unit = max(everything.sum(), 1.0) / _MEMORY_STEPS
        self.state = np.ceil(states / unit).astype(int)
        self.kept = np.ceil(everything / unit).astype(int)
        costs = chain.costs()
        self.before = np.concatenate([[0.0], np.cumsum(costs)])
        n = chain.length
        self.cost = np.full((n, n, _MEMORY_STEPS + 1), np.inf)
        self.choice = np.zeros((n, n, _MEMORY_STEPS + 1), dtype=int)
        for stage in range(n):
            self.cost[stage, stage, :] = costs[stage]
        for length in range(2, n + 1):
            for first in range(n - length + 1):
                self._fill(first, first + length - 1, costs)

    def _fill(self, first: int, last: int, costs: np.ndarray) -> None:
        best = self._shifted(self.cost[first + 1, last], self.kept[first]) + costs[first]
        choice = np.full(_MEMORY_STEPS + 1, _KEEP_ALL)
        for split in range(first + 1, last + 1):
            there = self.before[split] - self.before[first]
            rest = self._shifted(self.cost[split, last], self.state[split - 1])
            total = there + rest + self.cost[first, split - 1]
            better = total < best
            best = np.where(better, total, best)
            choice = np.where(better, split, choice)
        self.cost[first, last], self.choice[first, last] = best, choice

    @staticmethod
    def _shifted(row: np.ndarray, by: int) -> np.ndarray:
        """What is left of memory after ``by`` steps are taken."""
        shifted = np.full_like(row, np.inf)
        if by < len(row):
            shifted[by:] = row[: len(row) - by]
        return shifted


def _merged(stages: list[list[int]]) -> list[list[int]]:
    """At most _MOST_STAGES, neighbours joined."""
    group = -(-len(stages) // _MOST_STAGES)
    joined = [stages[i : i + group] for i in range(0, len(stages), group)]
    return [[p for stage in part for p in stage] for part in joined]


def _backward_blocks(graph: PlanGraph, stages: list[list[int]]) -> list[list[int]]:
    """By stage: the backward ops, in order, that can run before an earlier stage is there."""
    stage_of = {p: i for i, stage in enumerate(stages) for p in stage}
    blocks: list[list[int]] = [[] for _ in stages]
    lowest = len(stages) - 1
    for position, op in enumerate(graph.ops):
        if position in stage_of:
            continue
        read = [stage_of[graph.maker[s]] for s in op.inputs if graph.maker[s] in stage_of]
        lowest = min([lowest, *read])
        blocks[lowest].append(position)
    return blocks


def _without_waste(graph: PlanGraph, sequence: list[int]) -> list[int]:
    """Without recomputations whose results nobody reads before they are computed once more."""
    wanted: set[int] = set(graph.kept)
    computed: set[int] = set()
    firsts = []
    for position in sequence:
        firsts.append(position not in computed)
        computed.add(position)
    kept = []
    for position, first in zip(reversed(sequence), reversed(firsts), strict=True):
        op = graph.ops[position]
        if not first and not wanted.intersection(op.outputs):
            continue
        wanted.difference_update(op.outputs)
        wanted.update(op.inputs)
        kept.append(position)
    return kept[::-1]
