"""What a trace says of the program at its start, so that the file is read without the program."""

from __future__ import annotations

import time
from typing import Any

from .. import __version__

# Roles of storages, in the order in which pictures stack them.
PARAMETERS, OPTIMIZER, INPUTS = "parameters", "optimizer state", "inputs and constants"
ACTIVATIONS, GRADIENTS, WORKSPACE, FREE = "activations", "gradients", "workspace", "free"
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

    known: dict[str, Any] = {"unbudgeted_peak_bytes": program.measured_peak_bytes}
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


def state_role(name: str, trained: set[str]) -> str:
    """Optimizer state is called SLOT:PARAMETER; running statistics count as parameters."""
    slot, _, parameter = name.partition(":")
    return OPTIMIZER if slot and parameter in trained else PARAMETERS
