"""Which ops of a training step are the forward pass, and which the backward pass."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..compile.opgraph import OpGraph


_LONGEST_SIDE_WAY = 3  # ops from forward results to a result like a running statistic


def backward_ops(graph: OpGraph) -> tuple[list[bool], frozenset[int]]:
    """By op id: whether the op belongs to the backward pass; and which forward ops the loss, the
    first result, does not need.

    Forward is what the loss needs, and ops beside it that read forward results only and that no
    backward op reads, such as new running statistics.
    """
    needed = _needed(graph, graph.results[:1])
    side: set[int] = set()
    for result in graph.results[1:]:
        own = _needed(graph, [result]) - needed
        side |= own if len(own) <= _LONGEST_SIDE_WAY else set()
    side = _closed(graph, needed, side)
    forward = needed | side
    return [index not in forward for index in range(len(graph.ops))], frozenset(side)


def _closed(graph: OpGraph, needed: set[int], side: set[int]) -> set[int]:
    """What is left of ``side`` without ops that read others or that others read."""
    maker = {t: o for o, op in enumerate(graph.ops) for t in op.outputs}
    links = [
        (maker[_root(graph, tensor)], reader)
        for reader, op in enumerate(graph.ops)
        for tensor in op.inputs
        if _root(graph, tensor) in maker
    ]
    while True:
        out = {b for a, b in links if b in side and a not in side and a not in needed}
        out |= {a for a, b in links if a in side and b not in side}
        if not out:
            return side
        side = side - out


def _root(graph: OpGraph, tensor: int) -> int:
    base = graph.tensors[tensor].base
    return tensor if base < 0 else _root(graph, base)


def _needed(graph: OpGraph, tensors: list[int]) -> set[int]:
    """The ops that the tensors need."""
    maker = {t: o for o, op in enumerate(graph.ops) for t in op.outputs}
    found: set[int] = set()
    pending = list(tensors)
    while pending:
        op = maker.get(_root(graph, pending.pop()))
        if op is not None and op not in found:
            found.add(op)
            pending += graph.ops[op].inputs
    return found
