"""Ops that free more than they make run as soon as they can.

Depth-first order runs an op when its result is asked for. The gradient of a parameter with several
uses (a tied embedding, a shared slope) is a sum that is asked for at the first use, so the products
of the later uses would wait there, with all of their operands.
"""

from __future__ import annotations

from collections import defaultdict

from .opgraph import Instruction, OpGraph


def run_reductions_early(graph: OpGraph) -> list[Instruction]:
    """The instructions, without kills, with each op of that kind right after its last operand, and
    after the others that read what it frees.

    An op moves if its outputs are at most half the bytes of the storages that it is the last to
    read.
    """
    mover = _Mover(graph)
    after: dict[int, list[Instruction]] = defaultdict(list)
    moved: set[Instruction] = set()
    for instruction in graph.instructions:
        place = mover.place(instruction)
        if place is not None:
            unit = [i for i in mover.unit(instruction, place) if i not in moved]
            after[place] += unit
            moved.update(unit)
    ordered: list[Instruction] = []
    for position, instruction in enumerate(graph.instructions):
        if instruction not in moved:
            ordered.append(instruction)
        ordered += after[position]
    return ordered


class _Mover:
    def __init__(self, graph: OpGraph) -> None:
        self.graph = graph
        self.position = {ins: n for n, ins in enumerate(graph.instructions)}
        self.maker = {t: i for i in graph.instructions for t in graph.tensors_defined(i)}
        self.readers: dict[int, list[int]] = defaultdict(list)  # storage -> positions of its ops
        for (kind, index), n in self.position.items():
            if kind == "op":
                for tensor in graph.ops[index].inputs:
                    self.readers[graph.tensors[tensor].storage].append(n)
        kept = [*graph.parameters, *graph.constants, *graph.results]
        self.kept = {graph.tensors[t].storage for t in kept}

    def place(self, instruction: Instruction) -> int | None:
        """Position after which the op can run and be the last to read, if that pays."""
        kind, index = instruction
        if kind != "op":
            return None
        here = self.position[instruction]
        ends = self._ending_at(here, index)
        place = max(
            [self._ready(t) for t in self.graph.ops[index].inputs]
            + [n for s in ends for n in self.readers[s] if n < here],
            default=-1,
        )
        between = self.graph.instructions[place + 1 : here]
        if place < 0 or all(kind == "view" for kind, _ in between):
            return None
        made = {self.graph.tensors[t].storage for t in self.graph.ops[index].outputs}
        sizes = self.graph.storages
        return place if 2 * sum(sizes[s] for s in made) <= sum(sizes[s] for s in ends) else None

    def _ending_at(self, here: int, op: int) -> set[int]:
        """Storages among the operands that nothing reads after position ``here``."""
        read = {self.graph.tensors[t].storage for t in self.graph.ops[op].inputs}
        return {s for s in read if s not in self.kept and self.readers[s][-1] == here}

    def unit(self, instruction: Instruction, place: int) -> list[Instruction]:
        """The op with the views among its operands that are made after ``place``."""
        views: list[Instruction] = []
        for tensor in self.graph.tensors_read(instruction):
            maker = self.maker.get(tensor)
            if maker is not None and self.position[maker] > place:
                views += self.unit(maker, place)
        return [*dict.fromkeys(views), instruction]

    def _ready(self, tensor: int) -> int:
        """Position of the op that makes a tensor or what it is a view of; -1 for a parameter."""
        maker = self.maker.get(tensor)
        while maker is not None and maker[0] == "view":
            maker = self.maker.get(self.graph.tensors[maker[1]].base)
        return -1 if maker is None or maker[0] == "const" else self.position[maker]
