"""What a user can be told: each error is one line that names the bad thing and what to do."""

from __future__ import annotations

from typing import Any

# What reading data that is not as it was written ends in, in as many ways as it has fields.
MALFORMED = (
    KeyError,
    IndexError,
    TypeError,
    ValueError,
    AttributeError,
    OverflowError,
    RecursionError,
)


class DTRError(Exception):
    """Base of every error that this package raises on purpose."""


class UsageError(DTRError):
    """A wrong argument: a budget that does not parse, an unknown loss, a missing option."""


class ModelError(DTRError):
    """The ONNX model cannot be read or trained; names the file, node and op."""


class InputError(DTRError):
    """An input of a step is missing, unknown, misshaped or of the wrong type."""


class ProgramError(DTRError):
    """A saved program is damaged or was made by another version."""


class CheckpointError(DTRError):
    """A checkpoint is damaged, or of another program; names the file and the one to go back to."""


class DivergedError(DTRError):
    """The loss of a training run is no number any more, and the run was to stop there."""


class BudgetError(DTRError):
    """The memory budget is too small and nothing is left to evict.

    Attributes (all in bytes): ``budget_bytes``; ``short_bytes``, what was missing;
    ``needed_budget_bytes``, the smallest budget that passes this point; ``op``, the name of the
    kernel, None where no kernel is involved; ``holders``, a list of dicts of what is pinned or
    locked, largest first; ``program``, what was to run, None for a bare executable.
    """

    def __init__(self, message: str, **details: Any) -> None:
        super().__init__(message)
        self.op: str | None = details.get("op") or None
        self.budget_bytes: int = details.get("budget_bytes", 0)
        self.short_bytes: int = details.get("short_bytes", 0)
        self.needed_budget_bytes: int = details.get("needed_budget_bytes", 0)
        self.holders: list[dict[str, Any]] = details.get("holders", [])
        self.program: Any = details.get("program")

    def remedies(self) -> list[str]:
        """What helps, cheapest first: a larger budget, a smaller batch. Takes seconds."""
        from .explain import remedies

        if self.program is None:
            return []
        return remedies(self.program, self.budget_bytes, self.needed_budget_bytes)


class ThrashError(DTRError):
    """Recomputation has cost more than the thrash limit allows.

    Attributes: ``compute_cost`` and ``remat_cost`` in nanoseconds of the costs stored with the
    program, ``limit``; ``budget_bytes``; ``holders`` as in BudgetError.
    """

    def __init__(self, message: str, **details: Any) -> None:
        super().__init__(message)
        self.compute_cost: float = details.get("compute_cost", 0.0)
        self.remat_cost: float = details.get("remat_cost", 0.0)
        self.limit: float = details.get("limit", 0.0)
        self.budget_bytes: int = details.get("budget_bytes", 0)
        self.holders: list[dict[str, Any]] = details.get("holders", [])
        self.program: Any = details.get("program")

    def remedies(self) -> list[str]:
        """What helps, cheapest first: a larger budget, a smaller batch. Takes seconds."""
        from .advise import automatic_budget
        from .explain import remedies

        if self.program is None:
            return []
        if self.program.control_flow:  # no budget is known to be enough
            return remedies(self.program, self.budget_bytes, 2 * self.budget_bytes)
        needed = automatic_budget(self.program)
        if needed <= self.budget_bytes:  # with the costs of this machine it was not enough
            peak = self.program.unbudgeted_peak_bytes
            needed = max((self.budget_bytes + peak) // 2, self.budget_bytes + 1)
        return remedies(self.program, self.budget_bytes, needed)
