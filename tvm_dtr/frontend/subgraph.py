"""Import of the bodies of Loop, Scan and If: graphs that see the tensors around them."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Sequence
from typing import TYPE_CHECKING

import onnx
from tvm import relay

from ..control_flow.definitions import Type
from ..errors import ModelError
from ..relay_graph import Expr, calls_op, infer_local
from .node import label
from .sequences import TensorSequence
from .values import Value

if TYPE_CHECKING:
    from .importer import Importer


class Captures:
    """Tensors of the surroundings that bodies use, each with the variable that stands for it.

    The two branches of an If share theirs, so that both have the same parameters.
    """

    def __init__(self) -> None:
        self.variables: dict[Expr, relay.Var] = {}

    def variable(self, outer: Expr) -> relay.Var:
        if outer not in self.variables:
            self.variables[outer] = typed_variable("captured", outer.checked_type)
        return self.variables[outer]


def typed_variable(name: str, kind: Type) -> relay.Var:
    return infer_local(relay.Var(name, kind))


def subgraph_importer(
    owner: onnx.NodeProto, attribute: str, parent: Importer, captures: Captures
) -> SubgraphImporter:
    """The importer of a graph that is an attribute of a node; ModelError if there is none."""
    for item in owner.attribute:
        if item.name == attribute and item.type == onnx.AttributeProto.GRAPH:
            return SubgraphImporter(owner, item.g, parent, captures)
    raise ModelError(f"{label(owner)}: the attribute '{attribute}' (a graph) is missing")


def _importer_class() -> type[Importer]:
    from .importer import Importer  # which needs the converters, which need this module

    return Importer


class SubgraphImporter(_importer_class()):  # type: ignore[misc]
    """Imports one body. Set its inputs with ``bind``, then ``run_body``.

    What it uses of the surroundings becomes a parameter; stored tensors of the body are parameters
    of the model like any others. In a loop, a row of an outer tensor that is picked by the number
    of the iteration is given row by row, so that its gradient is made row by row too.
    """

    def __init__(
        self,
        owner: onnx.NodeProto,
        graph: onnx.GraphProto,
        parent: Importer,
        captures: Captures,
    ) -> None:
        self.owner, self.graph, self.parent, self.captures = owner, graph, parent, captures
        self.shapes: dict[str, Sequence[int | str]] = {}
        self.model = parent.model
        self.opset, self.training = parent.opset, parent.training
        self.streams = 0
        self.local: dict[str, Value] = {}
        self.values = ChainMap(self.local, parent.values)
        self.index: relay.Var | None = None
        self.rows: dict[Expr, relay.Var] = {}
        self.taken_rows: dict[Expr, Expr] = {}
        for tensor in graph.initializer:
            self._root().add_stored(tensor, label(owner))

    def bind(self, name: str, expr: Expr) -> None:
        self.local[name] = Value(name, expr)

    def bind_sequence(self, name: str, sequence: TensorSequence) -> None:
        self.local[name] = Value(name, sequence=sequence)

    def run_body(self) -> list[Expr | TensorSequence]:
        """The body's results as typed expressions."""
        for node in self._needed_nodes():
            self.convert(node)
        return [self._result(output.name) for output in self.graph.output]

    def _result(self, name: str) -> Expr | TensorSequence:
        return self.tensor(name) if self._value(name).sequence is None else self.sequence(name)

    # Values

    def tensor(self, name: str) -> Expr:
        return self._seen(name, "tensor")

    def sequence(self, name: str, by_row: bool = False) -> TensorSequence:
        if name in self.local:
            return super().sequence(name)
        outer = self.parent.sequence(name, by_row)
        outer.mark_read()
        if by_row and outer.rows is not None:
            return TensorSequence(outer.items, self._stand_in(outer.rows))
        self.bind_sequence(name, outer.mapped(self.captures.variable))
        return super().sequence(name)

    def _stand_in(self, rows: Expr) -> Expr:
        """For a tensor of which rows alone are taken: it is not captured as a whole."""
        marker = typed_variable("rows", rows.checked_type)
        self.taken_rows[marker] = rows
        return marker

    def row_at(self, rows: Expr, index: str) -> Expr | None:
        at = self.local.get(index)
        if self.index is None or at is None or at.expr is None or not self._is_index(at.expr):
            return None
        return self._row_of(self.taken_rows[rows]) if rows in self.taken_rows else None

    def weight(self, name: str) -> Expr:
        return self._seen(name, "weight")

    def running(self, name: str) -> Expr:
        raise ModelError(
            f"{label(self.owner)}: running statistics ('{name}') cannot be kept inside of its "
            "body; move the normalization out of it or use one without running statistics"
        )

    def random_key(self) -> tuple[Expr, int]:
        if self.index is not None:
            raise ModelError(
                f"{label(self.owner)}: random ops in its body would draw the same numbers in each "
                "iteration; move the dropout out of the loop"
            )
        key, stream = self.parent.random_key()
        return self.captures.variable(key), stream

    def shape(self, name: str) -> tuple[int, ...]:
        if name not in self.local and name in self.values and self.values[name].data is None:
            return self.parent.shape(name)
        return super().shape(name)

    def add_stored(self, tensor: onnx.TensorProto, owner: str) -> None:
        self._root().add_stored(tensor, owner)

    def _seen(self, name: str, how: str) -> Expr:
        if name in self.local:
            return getattr(super(), how)(name)
        value = self._value(name)
        if value.data is not None and not value.trainable and how == "tensor":
            self.local[name] = Value(name, data=value.data)
            return super().tensor(name)
        return self.captures.variable(getattr(self.parent, how)(name))

    def _root(self) -> Importer:
        root = self.parent
        while isinstance(root, SubgraphImporter):
            root = root.parent
        return root

    # Nodes

    def convert(self, proto: onnx.NodeProto) -> None:
        if not self._take_row(proto):
            super().convert(proto)

    def _pass_on(self, proto: onnx.NodeProto) -> bool:
        name = proto.input[0] if proto.input else ""
        if proto.op_type != "Identity" or name in self.local:
            return super()._pass_on(proto)
        value = self._value(name)
        if value.sequence is not None:
            self.bind_sequence(proto.output[0], self.sequence(name))
        elif value.data is not None and not value.trainable:
            self.local[proto.output[0]] = Value(proto.output[0], data=value.data)
        else:
            self.bind(proto.output[0], self.tensor(name))
        return True

    def _take_row(self, proto: onnx.NodeProto) -> bool:
        """Gather(outer tensor, number of the iteration) along the first axis."""
        if self.index is None or proto.op_type != "Gather":
            return False
        if any(a.name == "axis" and a.i != 0 for a in proto.attribute):
            return False
        tensor, index = proto.input
        at = self.local.get(index)
        if tensor in self.local or at is None or at.expr is None or not self._is_index(at.expr):
            return False
        value = self._value(tensor)
        if value.data is not None or value.sequence is not None:
            return False
        found: Expr = self._row_of(self.parent.tensor(tensor))
        if at.expr.checked_type.shape:
            found = infer_local(relay.expand_dims(found, 0))
        self.bind(proto.output[0], found)
        return True

    def _row_of(self, outer: Expr) -> relay.Var:
        if outer not in self.rows:
            kind = outer.checked_type
            row = relay.TensorType(list(kind.shape)[1:], kind.dtype)
            self.rows[outer] = typed_variable("row", row)
        return self.rows[outer]

    def _is_index(self, expr: Expr) -> bool:
        while calls_op(expr, "reshape", "squeeze", "expand_dims"):
            expr = expr.args[0]
        return bool(expr.same_as(self.index)) and len(expr.checked_type.shape) <= 1
