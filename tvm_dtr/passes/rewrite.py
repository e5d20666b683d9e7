"""A schedule as a program of its own: recomputed calls stand there twice.

The rewritten OpGraph is emitted as bytecode directly; no compiler pass sees it, so nothing merges
the calls back. TVM's own VM runs it, and so does ours, in its arena: where memory falls short of
what the schedule needs, DTR evicts underneath it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from ..compile.opgraph import Instruction, OpGraph, OpInfo
from .schedule import Schedule

if TYPE_CHECKING:
    from ..program import Program


def planned_program(program: Program, schedule: Schedule) -> Program:
    """The program that runs as ``schedule`` says; kernels, inputs, state and results are the same.

    The schedule must be one for the program's graph. Updates run in place where its order lets
    them, as the checker counts on; on TVM's own VM, which has no such updates, they never do:
    plan for ``program.out_of_place()`` there.
    """
    import tvm

    from ..compile.emit import emit_executable
    from ..plugin import load_plugin

    load_plugin()
    overwrites = program.replay.overwrites_in(schedule.sequence)
    graph = rewritten(program.graph, schedule.steps, overwrites)
    constants = tvm.get_global_func("tvm_dtr.executable_constants")(
        program.executable.mod, len(program.graph.constants)
    )
    names = [spec.name for spec in [*program.inputs, *program.state]]
    executable = emit_executable(graph, names, list(constants), program.executable.lib)
    return replace(program, executable=executable, graph=graph)


def rewritten(
    graph: OpGraph, steps: list[tuple[str, int]], overwrites: Iterable[int] = ()
) -> OpGraph:
    """The graph whose own order is the schedule; ops and tensors computed again are new ones.

    ``overwrites``: those of its ops that update a parameter in place in this order.
    """
    rewriter = _Rewriter(graph, overwrites)
    for kind, index in steps:
        if kind == "compute":
            rewriter.compute(index)
        else:
            rewriter.free(index)
    return rewriter.finish()


class _Rewriter:
    def __init__(self, graph: OpGraph, overwrites: Iterable[int]) -> None:
        self.graph = graph
        in_place = set(overwrites)
        self.in_place = {op: index for op, index in graph.overwrites if op in in_place}
        self.overwrites: list[tuple[int, int]] = []
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
        if index in self.in_place:
            self.overwrites.append((len(self.ops), self.in_place[index]))
            self._drop_views(op.inputs[self.in_place[index]])
        self.ops.append(op._replace(inputs=inputs, outputs=outputs))
        self.instructions.append(("op", len(self.ops) - 1))

    def free(self, storage: int) -> None:
        for tensor in self.alive.pop(storage, []):
            self.instructions.append(("kill", self.current.pop(tensor)))

    def _drop_views(self, parameter: int) -> None:
        """Nobody reads the old value any more, and a value with views is not written over."""
        storage = self.graph.tensors[parameter].storage
        for tensor in self.alive.get(storage, []):
            self.instructions.append(("kill", self.current.pop(tensor)))
        self.alive[storage] = []

    def finish(self) -> OpGraph:
        results = [self._use(tensor) for tensor in self.graph.results]
        return replace(
            self.graph,
            storages=self.storages,
            tensors=self.tensors,
            ops=self.ops,
            results=results,
            instructions=self.instructions,
            overwrites=self.overwrites,
            scheduled=True,
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
