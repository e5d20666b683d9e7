"""What a virtual machine runs, and the change to another program between steps: one of other sizes,
or a schedule of the same program."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import tvm

from .errors import UsageError
from .replay import Choice, choose_policy
from .symbolic import SymbolicProgram
from .vm_arguments import overwrite_marks, signed_seed


class Sizes:
    """A part of VirtualMachine: changes programs between steps; state and budget stay."""

    module: Any
    arena: str
    policy: str
    policy_choice: Choice | None
    stats: Any
    _program: Any
    _running: Any  # of a SymbolicProgram: that of the last step's sizes; else the program
    _chooses: bool  # whether the policy is auto
    _seed: int
    _thrash_limit: float
    _call: Callable[..., Any]
    _set_costs: Callable[[Any], None]

    def _change_to_sizes_of(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Before a step: of a SymbolicProgram, the program of its inputs' sizes takes over."""
        if not isinstance(self._program, SymbolicProgram):
            return
        program = self._program.for_inputs(arrays)
        if program is not self._running:
            self._call("change_executable", program.executable.mod)
            self._exec, self._running = program.executable, program
            self._set_costs(program.graph)
            self._mark_overwrites(program.graph)
            self._choose_for(program)

    def _follow(self, program: Any) -> None:
        if program is not None:
            self._call("follow", program.executable.mod)
            self._exec = program.executable
            self._mark_overwrites(program.graph)

    def _mark_overwrites(self, graph: Any) -> None:
        marks = overwrite_marks(graph)
        if len(marks):
            self.module["set_overwrites"](tvm.nd.array(marks), bool(graph.scheduled))

    def _choose_for(self, program: Any) -> None:
        budget = self.stats["budget_bytes"]
        if not self._chooses or budget is None or program.control_flow:
            return
        limits = (self._seed, self._thrash_limit, self.arena)
        self.policy_choice = choose_policy(program, budget, "auto", *limits)
        self.policy = self.policy_choice.policy
        self.module["set_policy"](self.policy, signed_seed(self._seed))


def refuse_sizes(program: Any, what: str) -> None:
    """Raises UsageError for what is told of one program only."""
    if isinstance(program, SymbolicProgram):
        names = ", ".join(f"{name}=..." for name in program.names)
        raise UsageError(
            f"{what} is of a program of fixed sizes, and this one has "
            f"{program.unplanned}: take program.at({names})"
        )
