"""The memory of a virtual machine: what it holds, has held and may hold."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .budget import Budget, format_bytes

if TYPE_CHECKING:
    from .vm import VirtualMachine

UNLIMITED = 2**64 - 1  # of counters: no budget


class Memory:
    """``vm.memory``: read at any time, also while nothing runs. All sizes in bytes.

    ``active <= reserved <= budget`` holds at every moment.
    """

    def __init__(self, machine: VirtualMachine) -> None:
        self._machine = machine

    @property
    def active(self) -> int:
        """Held by parameters, inputs, constants, tensors in memory, outputs that somebody keeps."""
        return self._machine.counters()["active_bytes"]

    @property
    def reserved(self) -> int:
        """``active``, and what is mapped beside it for the next tensors: what the system sees."""
        return self._machine.counters()["mapped_bytes"]

    @property
    def peak(self) -> int:
        """The most ``reserved`` since ``reset_peak``, the start of the last step, or the VM's."""
        return self._machine.counters()["peak_mapped_bytes"]

    @property
    def budget(self) -> int | None:
        """The most ``reserved`` may be; None: no budget."""
        budget = self._machine.counters()["budget_bytes"]
        return None if budget == UNLIMITED else budget

    def reset_peak(self) -> None:
        """The peak is counted anew, from what is reserved now."""
        self._machine.module["reset_peak"]()

    def set_budget(self, memory_budget: int | str | Budget | None) -> int | None:
        """Changes the budget; see ``VirtualMachine.set_budget``."""
        return self._machine.set_budget(memory_budget)

    def __repr__(self) -> str:
        budget = "none" if self.budget is None else format_bytes(self.budget)
        return (
            f"Memory(active={format_bytes(self.active)}, reserved={format_bytes(self.reserved)}, "
            f"peak={format_bytes(self.peak)}, budget={budget})"
        )
