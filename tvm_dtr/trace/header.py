"""What a trace says of the program at its start, so that the file is read without the program."""

from __future__ import annotations

import time
from typing import Any

from .. import __version__

# Roles of storages, in the order in which pictures stack them.
PARAMETERS, OPTIMIZER, INPUTS = "parameters", "optimizer state", "inputs and constants"
ACTIVATIONS, GRADIENTS, WORKSPACE, FREE = "activations", "gradients", "workspace", "free"
_KINDS: dict[str, tuple[Any, ...]] = {
    "name": (str,),
    "started": (str,),
    "policy": (str,),
    "kernels": (list,),
    "kernel_sources": (dict,),
    "parameters": (list,),
    "results": (list,),
    "budget_bytes": (int, type(None)),
    "unbudgeted_peak_bytes": (int, type(None)),
    "graph": (dict, type(None)),
}
ROLES = (PARAMETERS, OPTIMIZER, INPUTS, ACTIVATIONS, GRADIENTS, WORKSPACE, FREE)


def make_header(machine: Any, name: str) -> dict[str, Any]:
    """The header of a trace of ``machine`` (a tvm_dtr.VirtualMachine) under the title ``name``."""
    header: dict[str, Any] = {
        "format": "tvm-dtr event trace",
        "tvm_dtr": __version__,
        "name": name,
        "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "policy": machine.policy,
        "kernels": machine.module["kernel_names"]().split(),
        "budget_bytes": machine.stats["budget_bytes"],
    }
    program = machine._program
    return header if program is None else header | _of_program(program)


def _of_program(program: Any) -> dict[str, Any]:
    from ..replay import step_boundary

    known: dict[str, Any] = {
        "unbudgeted_peak_bytes": program.measured_peak_bytes,
        "kernel_sources": {k.name: k.sources for k in program.graph.kernels if k.sources},
    }
    if not program.control_flow:  # else no graph stands for all steps
        inputs, next_state = step_boundary(program)
        graph = {**program.graph.to_dict(), "inputs": inputs, "next_state": next_state}
        known = {"unbudgeted_peak_bytes": program.unbudgeted_peak_bytes, "graph": graph}
    trained = set(program.parameter_names)
    return known | {
        "parameters": [{"name": spec.name, "role": INPUTS} for spec in program.inputs]
        + [{"name": spec.name, "role": state_role(spec.name, trained)} for spec in program.state],
        "results": [{"name": result.name, "kind": result.kind} for result in program.results],
    }


def checked_header(header: Any) -> dict[str, Any]:
    """A header from a file, as make_header makes them: whoever reads it may rely on it.

    Raises:
        KeyError, TypeError, ValueError: something in it is of another kind; names it.
    """
    if not isinstance(header, dict):
        raise ValueError("it is no JSON object")
    for name, kinds in _KINDS.items():
        if not isinstance(header.get(name, kinds[-1]()), kinds):
            raise ValueError(f"{name} is a {type(header[name]).__name__}")
    for name in ("budget_bytes", "unbudgeted_peak_bytes"):
        if not 0 <= (header.get(name) or 0) < 1 << 63:
            raise ValueError(f"{name} is no number of bytes")
    if not all(isinstance(kernel, str) for kernel in header.get("kernels", [])):
        raise ValueError("the name of a kernel is no text")
    for sources in header.get("kernel_sources", {}).values():
        if not isinstance(sources, list) or not all(isinstance(text, str) for text in sources):
            raise ValueError("the sources of a kernel are no texts")
    for parameter in header.get("parameters", []):
        if not isinstance(parameter["name"], str) or parameter["role"] not in ROLES:
            raise ValueError(f"parameter {parameter} has no name or no known role")
    for result in header.get("results", []):
        if not isinstance(result["name"], str) or not isinstance(result["kind"], str):
            raise ValueError(f"result {result} has no name or no kind")
    if header.get("graph") is not None:
        _check_graph(header["graph"])
    return header


def _check_graph(data: dict[str, Any]) -> None:
    from ..compile.opgraph import OpGraph
    from ..replay import replay_of

    graph = OpGraph.from_dict(data)
    replay_of(graph, data["inputs"], data["next_state"])  # checks what names what
    if not all(isinstance(op.source, str) for op in graph.ops):
        raise ValueError("the source of an op is no text")


def state_role(name: str, trained: set[str]) -> str:
    """Optimizer state is called SLOT:PARAMETER; running statistics count as parameters."""
    slot, _, parameter = name.partition(":")
    return OPTIMIZER if slot and parameter in trained else PARAMETERS
