"""What a program file holds, read without loading its code: it may be for another machine."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from .compile.opgraph import OpGraph, tensor_bytes
from .errors import MALFORMED, ProgramError
from .profile import kernel_bytes
from .program_file import checked_members, why_not_here
from .replay import RESERVE_BYTES, STEPS, replay_of, step_boundary, unbudgeted_peak
from .training import Result

_COPIED = (
    *("format_version", "package_version", "tvm_version", "target", "machine", "cpu", "threads"),
)


def inspect_program(
    path: str | os.PathLike[str], require_sha256: str | None = None
) -> dict[str, Any]:
    """Everything worth knowing of a program file, ready for JSON.

    ``runs_here`` tells whether this process can run it, ``reason`` why not. Sizes are bytes;
    ``inputs``, ``state`` and ``results`` have a name, shape, dtype and bytes each; ``kernels``
    have the ``calls`` of a step, costs in nanoseconds, workspace and operand bytes and the
    operations of one call. ``unbudgeted_peak_bytes`` and ``smallest_budget_bytes`` (by the
    policy dtr-eq) come from a replay.

    Raises ProgramError: the file is missing, no program, damaged or of another format, or has not
    the SHA-256 required.
    """
    file = Path(path)
    manifest, members = checked_members(file, require_sha256)
    try:
        return _description(file, manifest, members)
    except MALFORMED as error:
        raise ProgramError(
            f"{file}: the manifest is not complete ({error!r}); rebuild it with `tvm-dtr build`"
        ) from error


def _description(file: Path, manifest: dict[str, Any], members: dict[str, bytes]) -> dict[str, Any]:
    graph = OpGraph.from_dict(manifest["graph"])
    reason = why_not_here(file, manifest)
    kernels = _kernels(graph)
    trained = set(manifest["parameter_names"])
    state = [_tensor(s["name"], s["shape"], s["dtype"]) for s in manifest["state"]]
    return {
        "file": str(file),
        "file_bytes": file.stat().st_size,
        "member_bytes": _member_bytes(members),
        **{name: manifest[name] for name in _COPIED},
        "runs_here": reason is None,
        "reason": reason,
        "inputs": [_tensor(s["name"], s["shape"], s["dtype"]) for s in manifest["inputs"]],
        "state": [{**tensor, "trained": tensor["name"] in trained} for tensor in state],
        "results": _results(manifest, graph),
        "ops": len(graph.ops),
        "kernels": kernels,
        "constant_bytes": sum(graph.storages[graph.tensors[t].storage] for t in graph.constants),
        "step_cost_ns": sum(kernel["cost_ns"] * kernel["calls"] for kernel in kernels),
        "step_flops": sum(kernel["flops"] * kernel["calls"] for kernel in kernels),
        "workspace_bytes": max((k["workspace_bytes"] for k in kernels), default=0),
        **_memory(manifest, graph),
    }


def _member_bytes(members: dict[str, bytes]) -> dict[str, int]:
    """The state's arrays are one entry."""
    sizes = {name: len(data) for name, data in members.items() if not name.startswith("state/")}
    state = sum(len(data) for name, data in members.items() if name.startswith("state/"))
    return {**sizes, "state": state}


def _tensor(name: str, shape: Any, dtype: str) -> dict[str, Any]:
    size = tensor_bytes(tuple(shape), dtype)
    return {"name": name, "shape": list(shape), "dtype": dtype, "bytes": size}


def _results(manifest: dict[str, Any], graph: OpGraph) -> list[dict[str, Any]]:
    described = []
    for result, tensor in zip(manifest["results"], graph.results, strict=True):
        info = graph.tensors[tensor]
        described.append({**_tensor(result["name"], info.shape, info.dtype), **result})
    return described


def _kernels(graph: OpGraph) -> list[dict[str, Any]]:
    """The kernels that take most of a step's time first."""
    calls = Counter(op.kernel for op in graph.ops)
    sizes = kernel_bytes(graph)
    kernels = [
        {
            "name": kernel.name,
            "calls": calls[index],
            "cost_ns": kernel.cost_ns,
            "workspace_bytes": kernel.workspace_bytes,
            "operand_bytes": sizes[index],
            "flops": kernel.flops,
        }
        for index, kernel in enumerate(graph.kernels)
    ]
    return sorted(kernels, key=lambda kernel: -kernel["cost_ns"] * kernel["calls"])


def _memory(manifest: dict[str, Any], graph: OpGraph) -> dict[str, Any]:
    program: Any = SimpleNamespace(
        graph=graph,
        inputs=manifest["inputs"],
        state=[SimpleNamespace(name=entry["name"]) for entry in manifest["state"]],
        results=[Result(**entry) for entry in manifest["results"]],
    )
    replay = replay_of(graph, *step_boundary(program))
    peak = unbudgeted_peak(replay)
    smallest = replay.smallest_budget(
        policy="dtr-eq", tolerance=max(65536, peak // 512), steps=STEPS, reserve=RESERVE_BYTES
    )
    # Without evictions no reserve is needed.
    return {"unbudgeted_peak_bytes": peak, "smallest_budget_bytes": min(smallest, peak)}
