"""PlanGraph: what a planner is given. Ops in the order they run, storages, costs, bytes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from .. import _core
from ..errors import DTRError
from ..replay import STEPS

if TYPE_CHECKING:
    from ..program import Program


class NotPlannableError(DTRError):
    """The program, or its shape, is none that the planner can plan for."""


class PlanOp(NamedTuple):
    """One op at its place in the order.

    id: of the graph's op. cost: nanoseconds, or the graph's own unit. inputs, outputs: storages,
    each once, pinned ones left out. last_rerun: the op may run again only before the op at this
    position, which overwrites what it reads; the number of ops where nothing does.
    """

    id: int
    cost: float
    workspace_bytes: int
    inputs: list[int]
    outputs: list[int]
    last_rerun: int


@dataclass
class PlanGraph:
    """A step to plan for.

    core: the graph in the core, which checks schedules. exact_bytes: sizes count as given, for
    graphs of the literature; otherwise as the VM's arena hands them out. backward: by op id, True
    for ops of the backward pass; None where nothing is known. side_ops: ids of forward ops beside
    the way to the loss. steps: how many steps in a row are
    checked (small tensors of the state share pages with others from the second on).
    """

    name: str
    core: _core.Replay
    exact_bytes: bool = False
    backward: Sequence[bool] | None = None
    side_ops: frozenset[int] = frozenset()
    op_names: Sequence[str] = field(default_factory=list)
    steps: int = STEPS

    @cached_property
    def _planning(self) -> dict[str, Any]:
        return self.core.planning_graph(exact_bytes=self.exact_bytes)

    @cached_property
    def ops(self) -> list[PlanOp]:
        """In the order they run: a position is an index of this list."""
        return [PlanOp(*op) for op in self._planning["ops"]]

    @property
    def bytes(self) -> list[int]:
        """Of each storage."""
        return self._planning["bytes"]

    @cached_property
    def kept(self) -> set[int]:
        """Storages that are handed out at the end."""
        return set(self._planning["kept"])

    @property
    def pinned_bytes(self) -> int:
        """What is in memory throughout."""
        return self._planning["pinned_bytes"]

    @cached_property
    def maker(self) -> dict[int, int]:
        """The position of the op that fills a storage."""
        return {s: p for p, op in enumerate(self.ops) for s in op.outputs}

    @cached_property
    def readers(self) -> dict[int, list[int]]:
        """The positions of the ops that read a storage, ascending."""
        readers: dict[int, list[int]] = {s: [] for s in self.maker}
        for position, op in enumerate(self.ops):
            for storage in op.inputs:
                readers[storage].append(position)
        return readers

    @cached_property
    def predecessors(self) -> list[list[int]]:
        """By position: the positions of the ops whose results the op reads, each once."""
        return [sorted({self.maker[s] for s in op.inputs}) for op in self.ops]

    @cached_property
    def own_cost(self) -> float:
        return sum(op.cost for op in self.ops)

    @cached_property
    def is_backward(self) -> list[bool]:
        """By position; all False where nothing is known."""
        if self.backward is None:
            return [False] * len(self.ops)
        return [bool(self.backward[op.id]) for op in self.ops]

    @cached_property
    def unbudgeted_peak_bytes(self) -> int:
        """Of the graph's own order, each storage freed after its last read."""
        return self.check(self.core.schedule_of(self.core.order()))["peak_bytes"]

    @cached_property
    def lower_bound_bytes(self) -> int:
        """What no schedule stays under: what is pinned and the largest op, or the results."""
        most = max(
            (
                op.workspace_bytes + sum(self.bytes[s] for s in {*op.inputs, *op.outputs})
                for op in self.ops
            ),
            default=0,
        )
        return self.pinned_bytes + max(most, sum(self.bytes[s] for s in self.kept))

    def check(self, steps: list[tuple[str, int]]) -> dict[str, Any]:
        """The core's report on a schedule: ``valid``, ``problem``, ``peak_bytes``, ``cost``..."""
        return self.core.check_schedule(
            steps, exact_bytes=self.exact_bytes, steps_run=1 if self.exact_bytes else self.steps
        )


def check_plannable(program: Program, name: str = "program") -> None:
    """Raises NotPlannableError where control flow depends on data."""
    if program.control_flow:
        raise NotPlannableError(
            f"{name} has {program.unplanned}: it cannot be planned for; DTR runs it (run "
            "--memory-budget, policy auto)"
        )


def graph_of_program(program: Program, name: str = "program") -> PlanGraph:
    """The graph of a built program's step.

    Raises:
        NotPlannableError: its control flow depends on data.
    """
    from .differentiation import backward_ops

    check_plannable(program, name)
    backward, side = backward_ops(program.graph)
    names = [op.source for op in program.graph.ops]
    return PlanGraph(name, program.replay, backward=backward, side_ops=side, op_names=names)
