"""Converters of RNN, GRU and LSTM.

A layer is unrolled over its steps, whose number is fixed. All steps' inputs are multiplied by the
weights at once; a step is then one product with the recurrence weights and one cell, an elementwise
composite whose backward pass computes again from the cell's operands. The sequence lengths may
differ from example to example and from training step to training step: beyond its end an example
keeps its state and gives zeros.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from tvm import relay

from ..autodiff.scalars import scalar
from ..autodiff.shape import pieces
from ..relay_graph import Expr, dtype_of, shape_of
from .node import Node
from .recurrent_cells import CELLS, GATES, Cell, cell_activations
from .registry import converter


@dataclass
class _Sequence:
    """The input as (steps * batch, features) and what the directions share."""

    node: Node
    rows: Expr
    steps: int
    batch: int
    hidden: int
    dtype: str
    lengths: Expr | None

    def alive(self, t: int) -> Expr | None:
        """Boolean (batch, 1): does step ``t`` belong to the example?"""
        if self.lengths is None:
            return None
        return self.node.typed(relay.greater(self.lengths, relay.const(t, "int64")))


@dataclass
class _Run:
    """Results of one direction: h of each step in the order of the input, and the last states."""

    outputs: list[Expr]
    states: list[Expr]


@converter("RNN", "GRU", "LSTM")
def recurrent(node: Node) -> list[Expr | None]:
    sequence = _sequence(node)
    directions = _directions(node)
    count, hidden = len(directions), sequence.hidden
    weights = _per_direction(node, 1, count, (GATES[node.op] * hidden, None))
    recurrences = _per_direction(node, 2, count, (GATES[node.op] * hidden, hidden))
    biases = _per_direction(node, 3, count, (2 * GATES[node.op] * hidden,))
    peepholes = _per_direction(node, 7, count, (3 * hidden,)) if node.op == "LSTM" else []
    runs = []
    for d, backwards in enumerate(directions):
        cell = Cell(
            node,
            hidden,
            cell_activations(node, d),
            recurrences[d],
            biases[d] if biases else None,
            peepholes[d] if peepholes else None,
        )
        runs.append(_run(sequence, cell, weights[d], _initial(sequence, d, count), backwards))
    return _results(node, sequence, runs)


def _directions(node: Node) -> list[bool]:
    kind = node.attr("direction", "forward")
    known = {"forward": [False], "reverse": [True], "bidirectional": [False, True]}
    if kind not in known:
        raise node.error(f"direction '{kind}'; expected {', '.join(known)}")
    return known[kind]


def _sequence(node: Node) -> _Sequence:
    x = node.tensor(0)
    if len(shape_of(x)) != 3:
        raise node.error(f"input {shape_of(x)}; expected three axes")
    if node.attr("layout", 0):
        x = node.typed(relay.transpose(x, (1, 0, 2)))
    steps, batch, features = shape_of(x)
    hidden = node.attr("hidden_size") or node.shape(2)[-1]
    lengths = None
    if node.has(4):
        known = node.known(4)
        if known is None or np.any(known != steps):
            lengths = relay.reshape(relay.cast(node.tensor(4), "int64"), (batch, 1))
            lengths = node.typed(lengths)
    rows = node.typed(relay.reshape(x, (steps * batch, features)))
    return _Sequence(node, rows, steps, batch, hidden, dtype_of(x), lengths)


def _per_direction(node: Node, i: int, count: int, shape: tuple[int | None, ...]) -> list[Expr]:
    """Operand ``i`` cut into directions; empty if it is not given."""
    if not node.has(i):
        return []
    whole = node.weight(i)
    given = shape_of(whole)
    fits = len(given) == len(shape) + 1 and given[0] == count
    if not fits or any(n not in (None, g) for n, g in zip(shape, given[1:], strict=True)):
        text = ", ".join("n" if n is None else str(n) for n in (count, *shape))
        raise node.error(f"input {i} has the shape {given}; expected ({text})")
    parts = pieces(whole, [1] * count, 0) if count > 1 else [whole]
    return [node.typed(relay.reshape(node.typed(part), given[1:])) for part in parts]


def _initial(sequence: _Sequence, direction: int, count: int) -> list[Expr]:
    """h, and c of an LSTM, before the first step: (batch, hidden) each."""
    node, states = sequence.node, []
    zero = relay.broadcast_to(scalar(0, sequence.dtype), (sequence.batch, sequence.hidden))
    for i in (5, 6) if node.op == "LSTM" else (5,):
        state = node.typed(zero)
        if node.has(i):
            whole = node.tensor(i)
            axis = 1 if node.attr("layout", 0) else 0
            if count > 1:
                whole = node.typed(pieces(whole, [1] * count, axis)[direction])
            state = node.typed(relay.reshape(whole, (sequence.batch, sequence.hidden)))
        states.append(state)
    return states


def _run(
    sequence: _Sequence, cell: Cell, weight: Expr, states: list[Expr], backwards: bool
) -> _Run:
    node = sequence.node
    given = cell.inputs(relay.nn.dense(sequence.rows, weight), sequence.steps, sequence.batch)
    outputs: list[Expr] = [None] * sequence.steps
    order = range(sequence.steps)
    for t in reversed(order) if backwards else order:
        new = CELLS[node.op](cell, [part[t] for part in given], states)
        alive = sequence.alive(t)
        if alive is not None:
            zero = scalar(0, sequence.dtype)
            outputs[t] = node.typed(relay.where(alive, new[0], zero))
            pairs = zip(new, states, strict=True)
            new = [node.typed(relay.where(alive, n, old)) for n, old in pairs]
        else:
            outputs[t] = new[0]
        states = new
    return _Run(outputs, states)


def _results(node: Node, sequence: _Sequence, runs: list[_Run]) -> list[Expr | None]:
    """Y (steps, directions, batch, hidden) and the last states (directions, batch, hidden); with
    layout 1 the batch comes first."""
    batch, hidden = sequence.batch, sequence.hidden
    layout = node.attr("layout", 0)
    results: list[Expr | None] = [None]
    if node.wants(0):
        per_step = [
            relay.reshape(r[t], (1, 1, batch, hidden))
            for t in range(sequence.steps)
            for r in [run.outputs for run in runs]
        ]
        whole = relay.concatenate(per_step, 0) if len(per_step) > 1 else per_step[0]
        y = relay.reshape(whole, (sequence.steps, len(runs), batch, hidden))
        results[0] = relay.transpose(y, (2, 0, 1, 3)) if layout else y
    for i in range(len(runs[0].states)):
        shape = (batch, 1, hidden) if layout else (1, batch, hidden)
        last = [relay.reshape(run.states[i], shape) for run in runs]
        results.append(relay.concatenate(last, 1 if layout else 0) if len(last) > 1 else last[0])
    return results
