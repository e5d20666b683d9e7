"""Which ops of a training step are the forward pass."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..compile.opgraph import OpGraph


def backward_ops(graph: OpGraph) -> list[bool]:
    """By op id: whether the loss, the first result, can be computed without the op."""
    maker = {t: o for o, op in enumerate(graph.ops) for t in op.outputs}
    backward = [True] * len(graph.ops)
    pending = list(graph.results[:1])
    while pending:
        tensor = pending.pop()
        base = graph.tensors[tensor].base
        op = maker.get(tensor if base < 0 else base)
        if op is not None and backward[op]:
            backward[op] = False
            pending += graph.ops[op].inputs
    return backward
