"""What the calls of control flow in a graph mean."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from tvm import relay

from ..relay_graph import Expr, infer_function, infer_local

Type = Any  # relay.Type, whose stubs lack what tensor types have
INDEX = relay.TensorType((), "int64")
CONDITION = relay.TensorType((), "bool")


@dataclass(frozen=True)
class Graph:
    """A body in graph form: typed ``results`` over ``params``; it captures nothing else."""

    params: list[relay.Var]
    results: list[Expr]


@dataclass(frozen=True)
class Branch:
    """Arguments: condition, then the parameters of both graphs. Results: those of the graphs."""

    then: Graph
    other: Graph


@dataclass(frozen=True)
class Loop:
    """Arguments: trip count, condition, ``states`` initial values, ``scans`` tensors of which each
    iteration takes one row, then captured values.

    The body's parameters are the iteration's number (int64), the condition, states, rows and
    captured values; its results the next condition, the next states, and rows of the outputs. The
    results of the call are the last states and the stacked rows, ``length`` of them where it is
    known before the run.
    """

    body: Graph
    states: int
    scans: int
    length: int | None = None

    @property
    def state_params(self) -> list[relay.Var]:
        return self.body.params[2 : 2 + self.states]

    @property
    def row_params(self) -> list[relay.Var]:
        return self.body.params[2 + self.states : 2 + self.states + self.scans]

    @property
    def captured_params(self) -> list[relay.Var]:
        return self.body.params[2 + self.states + self.scans :]

    @property
    def next_states(self) -> list[Expr]:
        return self.body.results[1 : 1 + self.states]

    @property
    def next_rows(self) -> list[Expr]:
        return self.body.results[1 + self.states :]


@dataclass(frozen=True)
class TreeFold:
    """A value for each node of a binary tree, from the leaves to the root.

    Arguments: the root's number, the left and the right child of each node (int64; a negative left
    one marks a leaf), a tensor with a row for each node, then captured values. ``leaf`` is over a
    leaf's row and the captured values; ``node`` over the states of the left child, those of the
    right one and the captured values. Results: the states of the root.
    """

    leaf: Graph
    node: Graph
    states: int


@dataclass(frozen=True)
class AugmentedTreeFold:
    """A fold that also returns its pullback: from the adjoints of the root's states to those of
    the captured values ``wanted``. The gradients are over ``seeds`` and of one leaf or node; those
    of a node are of the left child's states, the right one's, and the captured values."""

    fold: TreeFold  # results already use augmented calls
    wanted: list[int]
    leaf_seeds: list[relay.Var]
    node_seeds: list[relay.Var]
    leaf_gradients: list[Expr | None]
    node_gradients: list[Expr | None]


@dataclass(frozen=True)
class AugmentedBranch:
    """A branch that also returns its pullback: from the adjoints ``seeds`` of those results that
    have one to the adjoints of the parameters ``wanted`` (by number)."""

    branch: Branch  # results already use augmented calls
    seeds: list[relay.Var]
    wanted: list[int]
    then_gradients: list[Expr | None]
    other_gradients: list[Expr | None]


@dataclass(frozen=True)
class AugmentedLoop:
    """A loop that also returns its pullback: from the adjoints of the states ``states`` and the
    row outputs ``rows`` to those of these states, the scans ``scans`` and captured ``captured``
    (all by number). ``gradients`` are one iteration's, in that order, over ``state_seeds`` and
    ``row_seeds``."""

    loop: Loop  # results already use augmented calls
    states: list[int]
    rows: list[int]
    scans: list[int]
    captured: list[int]
    state_seeds: list[relay.Var]
    row_seeds: list[relay.Var]
    gradients: list[Expr | None]


Definition = Branch | Loop | TreeFold | AugmentedBranch | AugmentedLoop | AugmentedTreeFold


@dataclass
class Definitions:
    """The control flow of one step, by the name of the variable that its call calls."""

    table: dict[str, Definition] = field(default_factory=dict)
    variables: dict[str, relay.Var] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.table)

    def call(
        self,
        kind: str,
        definition: Definition,
        args: Sequence[Expr],
        results: Sequence[Type],
        span: relay.Span | None = None,
    ) -> relay.Call:
        """A typed call of a new definition. It returns a tuple."""
        name = f"{kind}_{len(self.table)}"
        kinds = relay.FuncType([arg.checked_type for arg in args], relay.TupleType(list(results)))
        variable = infer_local(relay.Var(name, kinds))
        self.table[name] = definition
        self.variables[name] = variable
        span = span or relay.Span(relay.SourceName(name), 0, 0, 0, 0)
        return infer_local(relay.Call(variable, list(args), span=span))

    def graph(self, params: Sequence[relay.Var], results: Sequence[Expr]) -> Graph:
        """A body with every expression in it typed, as rules of differentiation need it."""
        names = list(self.variables.values())
        function = relay.Function([*names, *params], relay.Tuple(list(results)))
        typed = infer_function(function)
        return Graph(list(typed.params[len(names) :]), list(typed.body.fields))

    def of(self, expr: Expr) -> Definition | None:
        """The definition that ``expr`` calls, if it is a call of control flow."""
        if isinstance(expr, relay.Call) and isinstance(expr.op, relay.Var):
            return self.table.get(expr.op.name_hint)
        return None


def stacked_type(row: Type, length: int | None) -> Type:
    """Type of ``length`` rows, one behind the other."""
    first = relay.Any() if length is None else length
    return relay.TensorType([first, *row.shape], row.dtype)
