"""Why a budget was refused or a run was stopped: what is held, by role and node, and what to do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .budget import format_bytes
from .trace.header import INPUTS, WORKSPACE, state_role
from .trace.naming import parse_source

if TYPE_CHECKING:
    from .program import Program


def held_by_op(program: Program, op: int | None) -> list[dict[str, Any]]:
    """What cannot be evicted while op number ``op`` of the graph runs, largest first.

    Dicts of ``name``, ``role``, ``bytes``, ``pinned`` and ``locks``: inputs, state and constants
    are pinned; the op's operands and workspace are locked. None: nothing runs yet.
    """
    if program.control_flow:
        return []
    graph = program.graph
    names = list(roles_of(program).items())
    holders: dict[int, dict[str, Any]] = {}
    for tensor, (name, role) in zip(graph.parameters, names, strict=True):
        _hold(holders, graph, tensor, name, role, pinned=True)
    for tensor in graph.constants:
        _hold(holders, graph, tensor, "constant", INPUTS, pinned=True)
    found = [] if op is None else _operands(program, op, holders)
    return sorted([*holders.values(), *found], key=lambda holder: -holder["bytes"])


def roles_of(program: Program) -> dict[str, str]:
    """The roles of inputs and state, by name."""
    trained = set(program.parameter_names)
    roles = {spec.name: INPUTS for spec in program.inputs}
    return roles | {spec.name: state_role(spec.name, trained) for spec in program.state}


def _hold(
    holders: dict[int, dict[str, Any]], graph: Any, tensor: int, name: str, role: str, pinned: bool
) -> None:
    storage = graph.tensors[tensor].storage
    holder = {"name": name, "role": role, "bytes": graph.storages[storage]}
    holders.setdefault(storage, {**holder, "pinned": pinned, "locks": 0})["locks"] += not pinned


def _operands(
    program: Program, op: int, holders: dict[int, dict[str, Any]]
) -> list[dict[str, Any]]:
    graph = program.graph
    made = {tensor: other.source for other in graph.ops for tensor in other.outputs}
    for tensor in [*graph.ops[op].inputs, *graph.ops[op].outputs]:
        base = graph.tensors[tensor].base
        source = parse_source(made.get(tensor if base < 0 else base, ""))
        role = "gradients" if source.phase == "backward" else "activations"
        _hold(holders, graph, tensor, source.label(), role, pinned=False)
    workspace = graph.kernels[graph.ops[op].kernel].workspace_bytes
    if workspace == 0:
        return []
    named = {"name": "workspace of the op", "role": WORKSPACE, "bytes": workspace}
    return [{**named, "pinned": False, "locks": 1}]


def by_role(holders: list[dict[str, Any]]) -> dict[str, int]:
    """Bytes held, by role, the largest first."""
    sums: dict[str, int] = {}
    for holder in holders:
        role = holder.get("role") or "tensors"
        sums[role] = sums.get(role, 0) + holder["bytes"]
    return dict(sorted(sums.items(), key=lambda item: -item[1]))


def remedies(program: Program, budget: int, needed: int) -> list[str]:
    """The two cheapest ways out, in whole sentences: more memory, or fewer rows."""
    from .advise import largest_batch, predict

    point = predict(program.replay, needed)
    slowdown = "" if point.slowdown is None else f" (predicted slowdown {point.slowdown:.2f})"
    lines = [f"give {format_bytes(needed)}: --memory-budget {needed}{slowdown}"]
    first = program.inputs[0].shape[0] if program.inputs and program.inputs[0].shape else 0
    batch = first if isinstance(first, int) else 0
    fewer = largest_batch(program, budget) if batch > 1 else 0
    if 0 < fewer < batch:
        lines.append(f"use a batch of about {fewer} in place of {batch}")
    return lines
