"""Einsum as transposes, sums and matrix products of two operands at a time."""

from __future__ import annotations

import math
import string
from dataclasses import dataclass

import numpy as np
from tvm import relay

from ..relay_graph import Expr, shape_of
from .node import Node
from .registry import converter


@dataclass
class Term:
    """A typed tensor and the label of each of its axes."""

    expr: Expr
    labels: list[str]


class _Contraction:
    def __init__(self, node: Node) -> None:
        self.node = node

    def _typed(self, expr: Expr) -> Expr:
        return self.node.typed(expr)

    def sizes(self, *terms: Term) -> dict[str, int]:
        sizes: dict[str, int] = {}
        for term in terms:
            for label, n in zip(term.labels, shape_of(term.expr), strict=True):
                known = sizes.get(label, 1)
                if known != n and 1 not in (known, n):
                    raise self.node.error(f"axis '{label}' has the sizes {known} and {n}")
                sizes[label] = max(known, n)
        return sizes

    def diagonal(self, term: Term) -> Term:
        """Labels that occur twice in a term: the elements where those coordinates are equal."""
        labels = list(dict.fromkeys(term.labels))
        if len(labels) == len(term.labels):
            return term
        shape, sizes = shape_of(term.expr), self.sizes(term)
        grid = np.indices([sizes[label] for label in labels])
        places = np.ravel_multi_index(
            tuple(grid[labels.index(label)] for label in term.labels), shape
        )
        flat = relay.reshape(term.expr, (-1,))
        taken = relay.take(flat, relay.const(places, "int64"), axis=0, mode="fast")
        return Term(self._typed(taken), labels)

    def summed(self, term: Term, needed: set[str]) -> Term:
        axes = [i for i, label in enumerate(term.labels) if label not in needed]
        if not axes:
            return term
        expr = self._typed(relay.sum(term.expr, axis=axes))
        return Term(expr, [label for label in term.labels if label in needed])

    def arranged(self, term: Term, labels: list[str]) -> Expr:
        """The tensor with its axes in the order of ``labels``, which are all of its own."""
        order = [term.labels.index(label) for label in labels]
        if order == sorted(order):
            return term.expr
        return self._typed(relay.transpose(term.expr, order))

    def product(self, a: Term, b: Term, needed: set[str]) -> Term:
        a = self.summed(a, needed | set(b.labels))
        b = self.summed(b, needed | set(a.labels))
        sizes = self.sizes(a, b)
        both = [label for label in a.labels if label in b.labels]
        batch = [label for label in both if label in needed]
        inner = [label for label in both if label not in needed]
        rows = [label for label in a.labels if label not in b.labels]
        columns = [label for label in b.labels if label not in a.labels]
        left = self._matrices(a, batch, rows, inner, sizes)
        right = self._matrices(b, batch, columns, inner, sizes)
        if batch:
            y = relay.nn.batch_matmul(left, right, transpose_b=True)
        else:
            y = relay.nn.dense(left, right)
        labels = [*batch, *rows, *columns]
        return Term(
            self._typed(relay.reshape(y, [sizes[label] for label in labels])),
            labels,
        )

    def _matrices(
        self, term: Term, batch: list[str], free: list[str], inner: list[str], sizes: dict[str, int]
    ) -> Expr:
        """(batch, free, inner), or (free, inner) without a batch."""
        labels = [*batch, *free, *inner]
        expr, full = self.arranged(term, labels), tuple(sizes[label] for label in labels)
        if shape_of(expr) != full:
            expr = relay.broadcast_to(expr, full)
        counts = [math.prod(sizes[label] for label in part) for part in (batch, free, inner)]
        return relay.reshape(expr, counts if batch else counts[1:])


@converter("Einsum")
def einsum(node: Node) -> Expr:
    """The operands are multiplied from left to right."""
    operands = [node.weight(i) for i in range(node.operand_count)]
    inputs, result = _parse(node, [len(shape_of(x)) for x in operands])
    work = _Contraction(node)
    terms = [work.diagonal(Term(x, i)) for x, i in zip(operands, inputs, strict=True)]
    work.sizes(*terms)
    while len(terms) > 1:
        a, b, *rest = terms
        needed = set(result).union(*(t.labels for t in rest))
        terms = [work.product(a, b, needed), *rest]
    return work.arranged(work.summed(terms[0], set(result)), result)


def _parse(node: Node, ranks: list[int]) -> tuple[list[list[str]], list[str]]:
    """Labels of the axes of each operand and of the result; an ellipsis counts from its end."""
    equation = node.attr("equation").replace(" ", "")
    left, arrow, right = equation.partition("->")
    parts = left.split(",")
    if len(parts) != len(ranks):
        raise node.error(f"equation '{equation}' has {len(parts)} terms for {len(ranks)} operands")
    hidden, inputs = 0, []
    for part, rank in zip(parts, ranks, strict=True):
        count = rank - len(part.replace("...", ""))
        if count < 0 or (count > 0 and "..." not in part):
            raise node.error(
                f"term '{part}' of equation '{equation}' for an operand of {rank} axes"
            )
        before, _, after = part.partition("...")
        inputs.append([*before, *[f"...{count - i}" for i in range(count)], *after])
        hidden = max(hidden, count)
    spread = [f"...{hidden - i}" for i in range(hidden)]
    if arrow:
        before, dots, after = right.partition("...")
        return inputs, [*before, *(spread if dots else []), *after]
    letters = [c for c in left if c in string.ascii_letters]
    return inputs, [*spread, *sorted(c for c in set(letters) if letters.count(c) == 1)]
