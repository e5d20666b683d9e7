"""One step of RNN, GRU and LSTM, in ONNX's notation.

A cell takes the step's inputs, already multiplied by the weights and with the biases added, and the
last states, and gives the new states, h first. What is elementwise is one composite.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from tvm import relay

from ..autodiff.composite import composite
from ..autodiff.scalars import scalar
from ..autodiff.shape import pieces
from ..relay_graph import Expr, dtype_of, shape_of
from .activations import elu, hard_sigmoid, softplus
from .node import Node

GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}

Function = Callable[[Expr], Expr]
# (x, dtype, alpha, beta) -> y, with the defaults of alpha and beta; None: the function has none
_Activation = tuple[Callable[[Expr, str, float, float], Expr], float | None, float | None]

_ACTIVATIONS: dict[str, _Activation] = {
    "affine": (lambda x, t, a, b: scalar(a, t) * x + scalar(b, t), 1.0, 0.0),
    "elu": (lambda x, t, a, b: elu(x, t, a), 1.0, None),
    "hardsigmoid": (lambda x, t, a, b: hard_sigmoid(x, t, a, b), 0.2, 0.5),
    "leakyrelu": (lambda x, t, a, b: relay.nn.leaky_relu(x, alpha=a), 0.01, None),
    "relu": (lambda x, t, a, b: relay.nn.relu(x), None, None),
    "scaledtanh": (lambda x, t, a, b: scalar(a, t) * relay.tanh(scalar(b, t) * x), 1.0, 1.0),
    "sigmoid": (lambda x, t, a, b: relay.sigmoid(x), None, None),
    "softplus": (lambda x, t, a, b: softplus(x, t), None, None),
    "softsign": (lambda x, t, a, b: x / (scalar(1, t) + relay.abs(x)), None, None),
    "tanh": (lambda x, t, a, b: relay.tanh(x), None, None),
    "thresholdedrelu": (
        lambda x, t, a, b: relay.where(relay.greater(x, scalar(a, t)), x, scalar(0, t)),
        1.0,
        None,
    ),
}
_DEFAULTS = {"RNN": ["Tanh"], "GRU": ["Sigmoid", "Tanh"], "LSTM": ["Sigmoid", "Tanh", "Tanh"]}


def cell_activations(node: Node, direction: int) -> list[Function]:
    """The activation functions of a direction; alphas and betas go to those that take one, in
    order."""
    count = len(_DEFAULTS[node.op])
    names = node.attr("activations") or _DEFAULTS[node.op] * (direction + 1)
    names = [n.decode() if isinstance(n, bytes) else n for n in names]
    if len(names) < count * (direction + 1):
        raise node.error(f"{len(names)} activations; expected {count} for each direction")
    alphas: Iterator[float] = iter(node.attr("activation_alpha", []))
    betas: Iterator[float] = iter(node.attr("activation_beta", []))
    found = []
    for name in names:
        if name.lower() not in _ACTIVATIONS:
            known = ", ".join(sorted(_ACTIVATIONS))
            raise node.error(f"activation '{name}' is not supported; expected one of {known}")
        formula, alpha, beta = _ACTIVATIONS[name.lower()]
        a = next(alphas, alpha) if alpha is not None else 0.0
        b = next(betas, beta) if beta is not None else 0.0
        found.append(_bound(formula, node.dtype(1), a, b))
    return found[count * direction : count * (direction + 1)]


def _bound(formula: Callable[..., Expr], dtype: str, alpha: float, beta: float) -> Function:
    return lambda x: formula(x, dtype, alpha, beta)


@dataclass
class Cell:
    """What the steps of one direction share. With G gates and H the hidden size: ``recurrence``
    (G H, H), ``bias`` (2 G H,), ``peepholes`` (3 H,)."""

    node: Node
    hidden: int
    functions: list[Function]
    recurrence: Expr
    bias: Expr | None
    peepholes: Expr | None

    def __post_init__(self) -> None:
        self.reset_first = self.node.op == "GRU" and not self.node.attr("linear_before_reset", 0)
        self.hidden_bias: Expr | None = None
        self.update_recurrence = self.candidate_recurrence = self.recurrence
        if self.reset_first:
            parts = pieces(self.recurrence, [2 * self.hidden, self.hidden], 0)
            typed = [self.node.typed(part) for part in parts]
            self.update_recurrence, self.candidate_recurrence = typed

    def clipped(self, x: Expr) -> Expr:
        limit = self.node.attr("clip")
        return x if limit is None else relay.clip(x, -float(limit), float(limit))

    def inputs(self, product: Expr, steps: int, batch: int) -> list[list[Expr]]:
        """The inputs' part of the gates, cut into steps; a GRU that resets before its product
        gets the candidate's part apart."""
        typed, hidden = self.node.typed, self.hidden
        if self.bias is not None:
            product = product + self._input_bias(batch)
        product = typed(product)
        wholes = [product]
        if self.reset_first:
            wholes = [typed(part) for part in pieces(product, [2 * hidden, hidden], 1)]
        if steps == 1:
            return [[whole] for whole in wholes]
        return [[typed(p) for p in pieces(whole, [batch] * steps, 0)] for whole in wholes]

    def _input_bias(self, batch: int) -> Expr:
        """Sum of both biases, but for what a GRU's reset gate multiplies, which is kept apart."""
        typed, hidden = self.node.typed, self.hidden
        size = GATES[self.node.op] * hidden
        first, second = (typed(part) for part in pieces(self.bias, [size, size], 0))
        if self.node.op != "GRU" or self.reset_first:
            return typed(first + second)
        gates, candidate = (typed(p) for p in pieces(second, [2 * hidden, hidden], 0))
        # One tensor for all steps: their gradients add up before the batch is summed.
        self.hidden_bias = typed(relay.broadcast_to(candidate, (batch, hidden)))
        others = relay.nn.pad(gates, [(0, hidden)])
        return typed(first + others)


def _column(x: Expr, batch: int, hidden: int, k: int) -> Expr:
    return relay.strided_slice(x, [0, k * hidden], [batch, (k + 1) * hidden])


def _rnn(cell: Cell, given: list[Expr], states: list[Expr]) -> list[Expr]:
    (h,) = states
    (f,) = cell.functions
    gate = cell.node.typed(given[0] + relay.nn.dense(h, cell.recurrence))
    return [cell.node.typed(composite("rnn_cell", [gate], lambda x: f(cell.clipped(x))))]


def _gru(cell: Cell, given: list[Expr], states: list[Expr]) -> list[Expr]:
    if cell.reset_first:
        return _gru_reset_first(cell, given, states)
    (h,) = states
    f, g = cell.functions
    batch, hidden = shape_of(h)
    one = scalar(1, dtype_of(h))
    product = cell.node.typed(relay.nn.dense(h, cell.recurrence))

    def body(given: Expr, product: Expr, h: Expr, *bias: Expr) -> Expr:
        x = [_column(given, batch, hidden, k) for k in range(3)]
        r = [_column(product, batch, hidden, k) for k in range(3)]
        update, reset = (f(cell.clipped(x[k] + r[k])) for k in (0, 1))
        from_state = r[2] + bias[0] if bias else r[2]
        candidate = g(cell.clipped(x[2] + reset * from_state))
        return (one - update) * candidate + update * h

    bias = [] if cell.hidden_bias is None else [cell.hidden_bias]
    return [cell.node.typed(composite("gru_cell", [given[0], product, h, *bias], body))]


def _gru_reset_first(cell: Cell, given: list[Expr], states: list[Expr]) -> list[Expr]:
    (h,) = states
    f, g = cell.functions
    typed = cell.node.typed
    batch, hidden = shape_of(h)
    one = scalar(1, dtype_of(h))
    gates = typed(given[0] + relay.nn.dense(h, cell.update_recurrence))

    def reset(gates: Expr, h: Expr) -> Expr:
        return f(cell.clipped(_column(gates, batch, hidden, 1))) * h

    def body(gates: Expr, candidate: Expr, h: Expr) -> Expr:
        update = f(cell.clipped(_column(gates, batch, hidden, 0)))
        return (one - update) * g(cell.clipped(candidate)) + update * h

    kept = typed(composite("gru_reset", [gates, h], reset))
    candidate = typed(given[1] + relay.nn.dense(kept, cell.candidate_recurrence))
    return [typed(composite("gru_cell", [gates, candidate, h], body))]


def _lstm(cell: Cell, given: list[Expr], states: list[Expr]) -> list[Expr]:
    h, c = states
    f, g, last = cell.functions
    batch, hidden = shape_of(h)
    one = scalar(1, dtype_of(h))
    coupled = bool(cell.node.attr("input_forget", 0))
    gates = cell.node.typed(given[0] + relay.nn.dense(h, cell.recurrence))

    def body(gates: Expr, c: Expr, *peepholes: Expr) -> Expr:
        i, o, forget, candidate = (_column(gates, batch, hidden, k) for k in range(4))
        p = [
            relay.strided_slice(q, [k * hidden], [(k + 1) * hidden])
            for q in peepholes
            for k in range(3)
        ]
        i = f(cell.clipped(i + p[0] * c if p else i))
        forget = one - i if coupled else f(cell.clipped(forget + p[2] * c if p else forget))
        new = forget * c + i * g(cell.clipped(candidate))
        o = f(cell.clipped(o + p[1] * new if p else o))
        return relay.Tuple([o * last(new), new])

    operands = [gates, c, *([] if cell.peepholes is None else [cell.peepholes])]
    result = cell.node.typed(composite("lstm_cell", operands, body))
    return [cell.node.typed(relay.TupleGetItem(result, i)) for i in (0, 1)]


CELLS: dict[str, Callable[[Cell, list[Expr], list[Expr]], list[Expr]]] = {
    "RNN": _rnn,
    "GRU": _gru,
    "LSTM": _lstm,
}
