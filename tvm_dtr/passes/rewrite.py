"""A schedule as a program of its own: recomputed calls stand there twice.

The rewritten OpGraph is emitted as bytecode directly; no compiler pass sees it, so nothing merges
the calls back. TVM's own VM runs it, and so does ours, in its arena: where memory falls short of
what the schedule needs, DTR evicts underneath it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ..compile.opgraph import Instruction, OpGraph, OpInfo
from .schedule import Schedule

if TYPE_CHECKING:
    from ..program import Program


def planned_program(program: Program, schedule: Schedule) -> Program:
    """The program that runs as ``schedule`` says; kernels, inputs, state and results are the same.

    The schedule must be one for the program's graph.
    """
    import tvm

    from ..compile.emit import emit_executable

    graph = rewritten(program.graph, schedule.steps)
    constants = tvm.get_global_func("tvm_dtr.executable_constants")(
        program.executable.mod, len(program.graph.constants)
    )
    names = [spec.name for spec in [*program.inputs, *program.state]]
    executable = emit_executable(graph, names, list(constants), program.executable.lib)
    return replace(program, executable=executable, graph=graph)


def rewritten(graph: OpGraph, steps: list[tuple[str, int]]) -> OpGraph:
    """The graph whose own order is the schedule; ops and tensors computed again are new ones."""
    rewriter = _Rewriter(graph)
    for kind, index in steps:
        if kind == "compute":
            rewriter.compute(index)
        else:
            rewriter.free(index)
    return rewriter.finish()


class _Rewriter:
    def __init__(self, graph: OpGraph) -> None:
        self.graph = graph
        self.storages = list(graph.storages)
        self.tensors = list(graph.tensors)
        self.ops: list[OpInfo] = []
        self.instructions: list[Instruction] = []
        self.constants = set(graph.constants)
        self.defined: set[int] = set()  # tensors of the graph that have been made once
        self.current: dict[int, int] = {t: t for t in graph.parameters}  # tensor -> its last copy
        self.alive: dict[int, list[int]] = {}  # storage of the graph -> its tensors now

    def compute(self, index: int) -> None:
        op = self.graph.ops[index]
        inputs = [self._use(tensor) for tensor in op.inputs]
        read = {self.graph.tensors[tensor].storage for tensor in op.inputs}
        for tensor in op.outputs:
            storage = self.graph.tensors[tensor].storage
            if storage not in read and tensor in self.current:
                self.free(storage)
        outputs = [self._define(tensor) for tensor in op.outputs]
        self.ops.append(op._replace(inputs=inputs, outputs=outputs))
        self.instructions.append(("op", len(self.ops) - 1))

    def free(self, storage: int) -> None:
        for tensor in self.alive.pop(storage, []):
            self.instructions.append(("kill", self.current.pop(tensor)))

    def finish(self) -> OpGraph:
        results = [self._use(tensor) for tensor in self.graph.results]
        return replace(
            self.graph,
            storages=self.storages,
            tensors=self.tensors,
            ops=self.ops,
            results=results,
            instructions=self.instructions,
            overwrites=[],  # it may compute again what needs an old value
        )

    def _use(self, tensor: int) -> int:
        """The copy of a tensor that is in memory; views and constants are made at first use."""
        if tensor in self.current:
            return self.current[tensor]
        base = self.graph.tensors[tensor].base
        if base >= 0:
            copy = self._define(tensor, self._use(base))
            self.instructions.append(("view", copy))
            return copy
        if tensor not in self.constants:
            raise ValueError(f"the schedule reads tensor {tensor} before it is computed")
        self.current[tensor] = tensor
        self.instructions.append(("const", tensor))
        return tensor

    def _define(self, tensor: int, base: int = -1) -> int:
        info = self.graph.tensors[tensor]
        copy = tensor
        if tensor in self.defined:
            copy = len(self.tensors)
            if base < 0:
                self.storages.append(self.graph.storages[info.storage])
                self.tensors.append(info._replace(storage=len(self.storages) - 1))
            else:
                self.tensors.append(info)
        if base >= 0:
            self.tensors[copy] = info._replace(storage=self.tensors[base].storage, base=base)
        self.defined.add(tensor)
        self.current[tensor] = copy
        self.alive.setdefault(info.storage, []).append(tensor)
        return copy
