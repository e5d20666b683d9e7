"""Schedule: which op to compute and which storage to free, in which order; and its JSON."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, NoReturn

from ..budget import format_bytes
from ..errors import BudgetError, UsageError
from ..notebook import Figures
from .graph import PlanGraph

FORMAT = "tvm-dtr schedule"
FORMAT_VERSION = 1


class InfeasibleError(BudgetError):
    """A planner found no schedule within the budget; ``needed_budget_bytes`` is the smallest
    budget that it can reach."""


@dataclass(frozen=True)
class Schedule:
    """A checked schedule.

    steps: ("compute", op id) and ("free", storage id). peak_bytes: everything in memory, pinned
    and workspace included, to the byte. cost, own_cost: with and without recomputation, in the
    graph's unit of time. lower_bound: on cost, where the planner has proved one.
    """

    method: str
    graph_name: str
    budget_bytes: int
    steps: list[tuple[str, int]]
    peak_bytes: int
    cost: float
    own_cost: float
    recomputed_ops: int
    lower_bound: float | None = None

    @property
    def slowdown(self) -> float:
        """Predicted: cost over own cost."""
        return self.cost / self.own_cost if self.own_cost else 1.0

    def figures(self) -> Figures:
        """What it is, to show."""
        return Figures(
            graph=self.graph_name,
            method=self.method,
            budget_bytes=self.budget_bytes,
            peak_bytes=self.peak_bytes,
            predicted_slowdown=f"{self.slowdown:.3f}",
            ops=len(self.sequence),
            recomputed_ops=self.recomputed_ops,
        )

    def __repr__(self) -> str:
        facts = ", ".join(f"{name}={value!r}" for name, value in self.figures().items())
        return f"Schedule({facts})"

    def _repr_html_(self) -> str:
        return self.figures()._repr_html_()

    @property
    def sequence(self) -> list[int]:
        """The ids of the ops computed, in order."""
        return [index for kind, index in self.steps if kind == "compute"]

    def to_json(self) -> str:
        """One line of JSON."""
        data = {
            "format": FORMAT,
            "format_version": FORMAT_VERSION,
            "graph": self.graph_name,
            "method": self.method,
            "budget_bytes": self.budget_bytes,
            "steps": [list(step) for step in self.steps],
        }
        return json.dumps(data, separators=(",", ":"))

    @staticmethod
    def from_json(text: str, graph: PlanGraph) -> Schedule:
        """Reads and checks a schedule for a graph.

        Raises:
            UsageError: the text is no schedule, or not a valid one for this graph.
        """
        try:
            data: Any = json.loads(text)
            if data["format"] != FORMAT or data["format_version"] != FORMAT_VERSION:
                raise ValueError(f"format {data['format']} {data['format_version']}")
            steps = [(str(kind), int(index)) for kind, index in data["steps"]]
            for kind, index in steps:
                if kind not in ("compute", "free") or not 0 <= index < 1 << 32:
                    raise ValueError(f"step {kind!r} {index} is not to compute an op or to free")
            method, budget = str(data["method"]), int(data["budget_bytes"])
        except (KeyError, TypeError, ValueError, OverflowError, RecursionError) as error:
            raise UsageError(f"no schedule as 'tvm-dtr plan --out' writes it: {error}") from error
        return checked(graph, method, steps, budget)


def checked(
    graph: PlanGraph,
    method: str,
    steps: list[tuple[str, int]],
    budget: int,
    lower_bound: float | None = None,
) -> Schedule:
    """The schedule of ``steps``, as the core's checker finds it; the budget is not looked at.

    Raises:
        UsageError: the schedule is not valid.
    """
    report = graph.check(steps)
    if not report["valid"]:
        raise UsageError(f"not a valid schedule for {graph.name}: {report['problem']}")
    return Schedule(
        method=method,
        graph_name=graph.name,
        budget_bytes=budget,
        steps=steps,
        peak_bytes=report["peak_bytes"],
        cost=report["cost"],
        own_cost=report["own_cost"],
        recomputed_ops=report["recomputed"],
        lower_bound=lower_bound,
    )


def of_sequence(
    graph: PlanGraph,
    method: str,
    ops: list[int],
    budget: int,
    lower_bound: float | None = None,
) -> Schedule:
    """The schedule that computes ``ops`` (ids) in order and frees as early as can be."""
    return checked(graph, method, graph.core.schedule_of(ops), budget, lower_bound)


def of_positions(graph: PlanGraph, method: str, positions: list[int], budget: int) -> Schedule:
    """As of_sequence, for places in the graph's order."""
    return of_sequence(graph, method, [graph.ops[p].id for p in positions], budget)


def best_within(graph: PlanGraph, method: str, found: list[Schedule], budget: int) -> Schedule:
    """The cheapest of ``found`` that stays within the budget.

    Raises:
        InfeasibleError: none does.
    """
    fitting = [schedule for schedule in found if schedule.peak_bytes <= budget]
    if fitting:
        return min(fitting, key=lambda schedule: (schedule.cost, schedule.peak_bytes))
    refuse(graph, method, budget, min(schedule.peak_bytes for schedule in found))


def refuse(graph: PlanGraph, method: str, budget: int, smallest: int) -> NoReturn:
    """Raises InfeasibleError."""
    raise InfeasibleError(
        f"{method} found no plan for {graph.name} within {format_bytes(budget)} ({budget} bytes): "
        f"the smallest budget that it can reach is {format_bytes(smallest)} ({smallest} bytes)",
        budget_bytes=budget,
        short_bytes=max(smallest - budget, 0),
        needed_budget_bytes=smallest,
    )
