"""What a virtual machine tells of its last step and of its memory, in numbers."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from .compile.opgraph import tensor_bytes
from .memory import UNLIMITED
from .notebook import Figures
from .trace.header import OPTIMIZER, PARAMETERS, state_role

if TYPE_CHECKING:
    from .replay import Choice


class Measurements:
    """A part of VirtualMachine: reads counters, changes nothing but their start."""

    module: Any
    policy: str
    policy_choice: Choice | None
    _program: Any
    _last: dict[str, Any]
    _steps: int

    @property
    def stats(self) -> dict[str, Any]:
        """The last step in numbers: ``budget_bytes`` (None: no budget), ``peak_bytes``,
        ``unbudgeted_peak_bytes`` (None for a bare executable), ``pinned_bytes``,
        ``workspace_bytes``, ``step_seconds``, ``compute_seconds``,
        ``remat_seconds``, ``search_seconds``, ``evictions``, ``rematerializations``, ``loss``;
        and ``steps`` so far. For a bare executable, everything since ``reset_stats``. Of what the
        next step will do: ``policy``, ``policy_reason`` and ``predicted_slowdown`` (None where
        nothing was predicted).
        """
        peak = None
        if self._program is not None:
            measured = self._program.control_flow
            peak = (
                self._program.measured_peak_bytes
                if measured
                else self._program.unbudgeted_peak_bytes
            )
        choice = self.policy_choice
        facts = {
            "unbudgeted_peak_bytes": peak,
            "steps": self._steps,
            "policy": self.policy,
            "policy_reason": None if choice is None else choice.reason(),
            "predicted_slowdown": None if choice is None else choice.prediction["slowdown"],
        }
        return Figures((self._last or self._measured()) | facts)

    def memory_report(self) -> Figures:
        """Bytes held at this moment: ``parameters_bytes`` and ``optimizer_state_bytes`` as their
        arrays have them; ``other_bytes``, the rest in use (inputs, constants, outputs, rounding);
        ``free_bytes``, mapped and unused; ``mapped_bytes``, their sum; ``budget_bytes`` (None: no
        budget) and ``peak_bytes`` of the last step.
        """
        counters = self.counters()
        trained = set() if self._program is None else set(self._program.parameter_names)
        sizes = {PARAMETERS: 0, OPTIMIZER: 0}
        for spec in [] if self._program is None else self._program.state:
            sizes[state_role(spec.name, trained)] += tensor_bytes(spec.shape, spec.dtype)
        return Figures(
            parameters_bytes=sizes[PARAMETERS],
            optimizer_state_bytes=sizes[OPTIMIZER],
            other_bytes=counters["active_bytes"] - sum(sizes.values()),
            free_bytes=counters["mapped_bytes"] - counters["active_bytes"],
            mapped_bytes=counters["mapped_bytes"],
            budget_bytes=self.stats["budget_bytes"],
            peak_bytes=self.stats["peak_bytes"],
        )

    def counters(self) -> dict[str, Any]:
        """Everything the VM counts, at this moment."""
        return json.loads(self.module["stats"]())

    def reset_stats(self) -> None:
        """Starts all counters and the peak anew."""
        self._last = {}
        self.module["reset_stats"]()
        self.module["reset_peak"]()

    def validate(self) -> None:
        """Checks every invariant of the runtime; raises on the first that does not hold."""
        self.module["validate"]()

    def _measured(self) -> dict[str, Any]:
        counters = self.counters()
        budget = counters["budget_bytes"]
        names = (
            "pinned_bytes",
            "workspace_bytes",
            "compute_seconds",
            "remat_seconds",
            "search_seconds",
            "evictions",
            "rematerializations",
        )
        measured = {name: counters[name] for name in names}
        return measured | {
            "budget_bytes": None if budget == UNLIMITED else budget,
            "peak_bytes": counters[
                "peak_mapped_bytes" if budget < UNLIMITED else "peak_active_bytes"
            ],
            "step_seconds": counters["compute_seconds"] + counters["remat_seconds"],
            "loss": None,
        }
