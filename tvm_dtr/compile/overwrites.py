"""Which ops may write their result over the parameter or state that it replaces.

An update such as ``p - lr * g`` reads each element of ``p`` once, where it writes the new one, and
may run in place: if its kernel is elementwise in ``p``, and if nothing after it reads the old
value. The latter is made true where it is not: the update moves behind the last reader of ``p``,
which is mostly the op that passes the gradient on to the layer before. Whether it then does run in
place is decided at run time (src/core/overwrite.cc).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm import relay

from .linearize import LinearStep, with_kills
from .opgraph import Instruction, OpGraph
from .relay_walk import post_order, types_of

_BROADCAST = 1  # TVM's OpPatternKind: 0 elementwise, 1 broadcasting, then those that move elements


def mark_overwrites(linear: LinearStep, next_state: Sequence[tuple[int, int]]) -> None:
    """Fills ``graph.overwrites`` and moves the ops in question.

    ``next_state``: (result, parameter) tensors, the new and the old value of each state.
    """
    graph = linear.graph
    order = [i for i in graph.instructions if i[0] != "kill"]
    maker = {t: i for i in order for t in graph.tensors_defined(i)}
    readers = _readers(graph, order)
    at = {instruction: place for place, instruction in enumerate(order)}
    moved: dict[Instruction, list[Instruction]] = {}
    for result, parameter in next_state:
        made = maker.get(result)
        if made is None or made[0] != "op" or not _may(linear, made[1], result, parameter):
            continue
        others = [r for r in readers.get(parameter, ()) if r != made]
        last = max(others, key=at.__getitem__, default=made)
        if at[last] > at[made]:
            if readers.get(result):
                continue  # what reads the new value would have to move as well
            moved.setdefault(last, []).append(made)
        index = graph.ops[made[1]].inputs.index(parameter)
        graph.overwrites.append((made[1], index))
    graph.instructions = _with_moves(order, moved)
    graph.instructions = with_kills(graph)


def _readers(graph: OpGraph, order: Sequence[Instruction]) -> dict[int, list[Instruction]]:
    """The instructions that read a tensor or a view of it, by the tensor, root or view."""
    readers: dict[int, list[Instruction]] = {}
    for instruction in order:
        for tensor in graph.tensors_read(instruction):
            readers.setdefault(tensor, []).append(instruction)
            base = graph.tensors[tensor].base
            if base >= 0:
                readers.setdefault(base, []).append(instruction)
    return readers


def _may(linear: LinearStep, op: int, result: int, parameter: int) -> bool:
    """Whether the op writes nothing but ``result``, elementwise from ``parameter``."""
    graph, info = linear.graph, linear.graph.ops[op]
    old, new = graph.tensors[parameter], graph.tensors[result]
    if info.outputs != [result] or info.inputs.count(parameter) != 1:
        return False
    same = (old.shape, old.dtype) == (new.shape, new.dtype) and old.base < 0
    storages = [graph.tensors[t].storage for t in info.inputs]
    returned = any(graph.tensors[t].storage == old.storage for t in graph.results)
    if not same or storages.count(old.storage) != 1 or returned or graph.results.count(result) != 1:
        return False
    return is_elementwise(linear.primitives[info.kernel], info.inputs.index(parameter))


def is_elementwise(primitive: relay.Function, index: int) -> bool:
    """Whether a fused function reads each element of a parameter only for the same one of its
    result."""
    variables = [v for p in primitive.params for v in [p] * len(types_of(p))]
    variable, result = variables[index], types_of(primitive.body)
    depends: set[Any] = {variable}
    for expr in post_order(primitive.body):
        if isinstance(expr, relay.Call) and any(arg in depends for arg in expr.args):
            pattern = expr.op.get_attr("TOpPattern") if hasattr(expr.op, "get_attr") else None
            read = [types_of(arg)[0][0] for arg in expr.args if arg in depends]
            shapes = [*read, *(shape for shape, _ in types_of(expr))]
            if pattern is None or pattern > _BROADCAST or any(s != result[0][0] for s in shapes):
                return False
            depends.add(expr)
        elif not isinstance(expr, relay.Call | relay.Var | relay.Constant):
            return False  # a tuple
    return len(result) == 1 and primitive.body in depends


def _with_moves(
    order: Sequence[Instruction], moved: dict[Instruction, list[Instruction]]
) -> list[Instruction]:
    """The instructions with each of ``moved`` right behind its key."""
    elsewhere = {instruction for group in moved.values() for instruction in group}
    new: list[Instruction] = []
    for instruction in order:
        if instruction not in elsewhere:
            new.append(instruction)
            pending = list(moved.get(instruction, ()))
            while pending:  # what stands behind one that has moved itself
                new.append(pending.pop(0))
                pending[:0] = moved.get(new[-1], ())
    return new
