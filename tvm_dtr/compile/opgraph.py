"""OpGraph: the storages, tensors and ops of one execution, in the order they run.

Terms are those of the DTR paper (Kirisame et al., ICLR 2021): a storage is a buffer and the unit
of eviction, a tensor is a view of a storage, an op is one call of a kernel.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

import numpy as np

# ("op", op id), ("view", tensor id), ("const", tensor id) or ("kill", tensor id)
Instruction = tuple[str, int]


def tensor_bytes(shape: tuple[int, ...], dtype: str) -> int:
    """Bytes of a dense tensor. TVM stores booleans as one byte each."""
    if dtype == "bool":
        bits = 8
    elif dtype == "bfloat16":
        bits = 16
    else:
        bits = np.dtype(dtype).itemsize * 8
    elements = 1
    for extent in shape:
        elements *= extent
    return elements * bits // 8


@dataclass
class Kernel:
    """A packed function of the kernel library.

    cost_ns: median time of one call, in nanoseconds, on the machine that built the program.
    workspace_bytes: upper bound of what one call holds at a time, all threads together.
    thread_workspace_bytes: the part of workspace_bytes that each running thread adds.
    flops: floating-point operations of one call.
    sources: the ONNX nodes that its calls may be of, where no op of the graph tells.
    """

    name: str
    cost_ns: float
    workspace_bytes: int
    thread_workspace_bytes: int = 0
    flops: int = 0
    sources: list[str] = field(default_factory=list)


class TensorInfo(NamedTuple):
    """A view of a storage. base: the tensor that it reshapes, or -1."""

    storage: int
    shape: tuple[int, ...]
    dtype: str
    base: int


class OpInfo(NamedTuple):
    """One call: kernel index, tensor ids read and written, where it came from."""

    kernel: int
    inputs: list[int]
    outputs: list[int]
    source: str


@dataclass
class OpGraph:
    """The ops of a step and their execution order. Storages are sizes in bytes.

    ``overwrites``: (op, index of an input) of the ops whose only output may take the place of that
    input, a parameter; nothing after them reads the old value. ``scheduled``: the order is a
    planner's, with ops computed again: what is killed is not wanted any more.
    """

    kernels: list[Kernel] = field(default_factory=list)
    storages: list[int] = field(default_factory=list)
    tensors: list[TensorInfo] = field(default_factory=list)
    ops: list[OpInfo] = field(default_factory=list)
    parameters: list[int] = field(default_factory=list)
    constants: list[int] = field(default_factory=list)
    results: list[int] = field(default_factory=list)
    instructions: list[Instruction] = field(default_factory=list)
    overwrites: list[tuple[int, int]] = field(default_factory=list)
    scheduled: bool = False

    def to_dict(self) -> dict[str, Any]:
        """Plain lists and dicts, ready for json."""
        return {
            "kernels": [asdict(kernel) for kernel in self.kernels],
            "storages": self.storages,
            "tensors": [[t.storage, list(t.shape), t.dtype, t.base] for t in self.tensors],
            "ops": [list(op) for op in self.ops],
            "parameters": self.parameters,
            "constants": self.constants,
            "results": self.results,
            "instructions": [list(instruction) for instruction in self.instructions],
            "overwrites": [list(pair) for pair in self.overwrites],
            "scheduled": self.scheduled,
        }

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> OpGraph:
        """The inverse of to_dict. Raises KeyError, TypeError or ValueError on other data."""
        return cls(
            kernels=[Kernel(**kernel) for kernel in data["kernels"]],
            storages=list(data["storages"]),
            tensors=[TensorInfo(s, tuple(shape), d, b) for s, shape, d, b in data["tensors"]],
            ops=[OpInfo(k, list(i), list(o), s) for k, i, o, s in data["ops"]],
            parameters=list(data["parameters"]),
            constants=list(data["constants"]),
            results=list(data["results"]),
            instructions=[(kind, index) for kind, index in data["instructions"]],
            overwrites=[(op, index) for op, index in data.get("overwrites", ())],
            scheduled=bool(data.get("scheduled", False)),
        )

    def to_json(self) -> str:
        """One line of JSON."""
        return json.dumps(self.to_dict(), separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> OpGraph:
        """The inverse of to_json."""
        return cls.from_dict(json.loads(text))

    def tensors_read(self, instruction: Instruction) -> list[int]:
        """The tensors that must be alive for an instruction to run."""
        kind, index = instruction
        if kind == "op":
            return self.ops[index].inputs
        if kind == "view":
            return [self.tensors[index].base]
        return []

    def tensors_defined(self, instruction: Instruction) -> list[int]:
        """The tensors that an instruction brings to life."""
        kind, index = instruction
        if kind == "op":
            return self.ops[index].outputs
        return [index] if kind in ("view", "const") else []
