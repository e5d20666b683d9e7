"""Why a budget was refused or a run was stopped: what is held, by role and node, and what to do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .budget import format_bytes
from .trace.header import ACTIVATIONS, GRADIENTS, INPUTS, PARAMETERS, WORKSPACE, state_role
from .trace.naming import Source, kernel_source, parse_source

if TYPE_CHECKING:
    from .program import Program

# What the VM calls a tensor that a kernel has made, and what an op reserves.
_OUTPUT, _OP_AT_HAND = "output of ", "op at hand"
_EITHER = "activations and gradients"


def held_by_op(program: Program, op: int | None) -> list[dict[str, Any]]:
    """What cannot be evicted while op number ``op`` of the graph runs, largest first.

    Dicts of ``name``, ``role``, ``bytes``, ``pinned`` and ``locks``: inputs, state and constants
    are pinned; the op's operands and workspace are locked. None: nothing runs yet. With control
    flow only what has the same size in each step is known.
    """
    if program.control_flow:
        return _held_by_specs(program)
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


def _held_by_specs(program: Program) -> list[dict[str, Any]]:
    from .compile.opgraph import tensor_bytes  # imports TVM

    roles = roles_of(program)
    fixed = [
        spec
        for spec in [*program.inputs, *program.state]
        if all(isinstance(extent, int) for extent in spec.shape)
    ]
    holders = [
        {
            "name": spec.name,
            "role": roles[spec.name],
            "bytes": tensor_bytes(tuple(map(int, spec.shape)), spec.dtype),
            "pinned": True,
            "locks": 0,
        }
        for spec in fixed
    ]
    return sorted(holders, key=lambda holder: -holder["bytes"])


def sources_of(program: Program) -> dict[str, Source]:
    """The ONNX nodes behind each kernel, by the kernel's name."""
    texts = {kernel.name: list(kernel.sources) for kernel in program.graph.kernels}
    for op in program.graph.ops:
        of_kernel = texts[program.graph.kernels[op.kernel].name]
        if op.source and op.source not in of_kernel:
            of_kernel.append(op.source)
    return {name: kernel_source(name, known) for name, known in texts.items()}


def name_holders(program: Program, holders: list[dict[str, Any]]) -> None:
    """Gives what a VM tells of holders their roles, and outputs of kernels their nodes' names."""
    roles, sources = roles_of(program), sources_of(program)
    for holder in holders:
        source = sources.get(holder["name"].removeprefix(_OUTPUT))
        if source is not None:
            holder["name"] = _OUTPUT + source.label()
            forward = _EITHER if program.control_flow else ACTIVATIONS  # a kernel may be of both
            made = {"backward": GRADIENTS, "update": PARAMETERS}.get(source.phase, forward)
            roles[holder["name"]] = made
        if holder["name"].startswith("constant "):
            roles[holder["name"]] = INPUTS
        unknown = WORKSPACE if holder["name"] == _OP_AT_HAND else _EITHER
        holder["role"] = roles.get(holder["name"], unknown)


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

    if program.control_flow:
        return _remedies_unpredicted(program, budget, needed)
    point = predict(program.replay, needed)
    slowdown = "" if point.slowdown is None else f" (predicted slowdown {point.slowdown:.2f})"
    lines = [f"give {format_bytes(needed)}: --memory-budget {needed}{slowdown}"]
    batch = _batch(program)
    fewer = largest_batch(program, budget) if batch > 1 else 0
    if 0 < fewer < batch:
        lines.append(f"use a batch of about {fewer} in place of {batch}")
    return lines


def _remedies_unpredicted(program: Program, budget: int, needed: int) -> list[str]:
    """Where nothing can be replayed: what is no parameter is taken to grow with the batch."""
    lines = [f"give {format_bytes(needed)} or more: --memory-budget {needed}"]
    fixed = sum(h["bytes"] for h in held_by_op(program, None) if h["role"] != INPUTS)
    batch = _batch(program)
    fewer = batch * (budget - fixed) // max(needed - fixed, 1)
    if 0 < fewer < batch:
        lines.append(f"use a batch of about {fewer} in place of {batch}")
    return lines


def _batch(program: Program) -> int:
    """Rows of the labels or targets, or else of the first input; 0 where they are not known."""
    named = [spec for spec in program.inputs if spec.name in ("labels", "target")]
    specs = named or list(program.inputs[:1])
    first = specs[0].shape[0] if specs and specs[0].shape else 0
    return first if isinstance(first, int) else 0
