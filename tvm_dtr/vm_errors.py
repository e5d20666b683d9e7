"""The errors of a virtual machine, from what its module reports."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .budget import format_bytes
from .errors import BudgetError, DTRError, InputError, ThrashError, UsageError
from .explain import held_by_op, roles_of

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
    held = [
        f"{h['name']} {format_bytes(h['bytes'])} ({'pinned' if h['pinned'] else 'locked'})"
        for h in details["holders"][:_HOLDERS_SHOWN]
    ]
    more = len(details["holders"]) - len(held)
    if held:
        message += f"; held: {', '.join(held)}" + (f" and {more} more" if more else "")
    if machine._running is not None:
        roles = roles_of(machine._running)
        for holder in details["holders"]:
            holder["role"] = roles.get(holder["name"], "activations and gradients")
    return BudgetError(message, **details, program=machine._running)
