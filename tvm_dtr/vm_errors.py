"""The errors of a virtual machine, from what its module reports."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .budget import format_bytes
from .errors import BudgetError, DTRError, InputError, ThrashError, UsageError
from .explain import held_by_op, name_holders, sources_of

if TYPE_CHECKING:
    from .vm import VirtualMachine

_HOLDERS_SHOWN = 5
_ERRORS: dict[str, type[DTRError]] = {
    "InputError": InputError,
    "UsageError": UsageError,
}


def error_of(machine: VirtualMachine, details: dict[str, Any]) -> DTRError:
    """The exception that the module's report of an error stands for."""
    kind = details.pop("kind")
    message = details.pop("message").removeprefix(f"{kind}: ")
    if kind == "BudgetError":
        return _budget_error(machine, message, details)
    if kind == "ThrashError":
        budget = machine.counters()["budget_bytes"]
        holders = [] if machine._running is None else held_by_op(machine._running, None)
        facts = {"budget_bytes": budget, "holders": holders, "program": machine._running}
        return ThrashError(message, **details, **facts)
    return _ERRORS[kind](message)


def _budget_error(machine: VirtualMachine, message: str, details: dict[str, Any]) -> BudgetError:
    program = machine._running
    if program is not None:
        name_holders(program, details["holders"])
        kernel = details.get("op")
        node = sources_of(program).get(kernel) if kernel else None
        if node is not None and node.node != kernel:
            message = message.replace(f"at {kernel}", f"at {node.label()} (kernel {kernel})", 1)
    held = [
        f"{h['name']} {format_bytes(h['bytes'])} ({'pinned' if h['pinned'] else 'locked'})"
        for h in details["holders"][:_HOLDERS_SHOWN]
    ]
    more = len(details["holders"]) - len(held)
    if held:
        message += f"; held: {', '.join(held)}" + (f" and {more} more" if more else "")
    return BudgetError(message, **details, program=program)
