"""What a converter sees of an ONNX node."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import onnx

from ..errors import ModelError
from ..relay_graph import Expr, dtype_of, infer_local, shape_of

if TYPE_CHECKING:
    from .importer import Importer
    from .sequences import TensorSequence


def label(node: onnx.NodeProto) -> str:
    """How messages call a node: its name, or its first output if it has none."""
    name = node.name or next((o for o in node.output if o), "?")
    return f"node '{name}' ({node.op_type})"


class Node:
    """An ONNX node with its attributes and operands. Operands are counted from 0."""

    def __init__(self, proto: onnx.NodeProto, importer: Importer, opset: int) -> None:
        self.proto = proto
        self.op = proto.op_type
        self.opset = opset
        self._importer = importer
        self.used: list[Expr] = []
        self.updates: dict[str, Expr] = {}
        self._attributes = {a.name: a for a in proto.attribute}

    @property
    def training(self) -> bool:
        """Whether the node is converted for training; else for inference."""
        return self._importer.training

    def error(self, message: str) -> ModelError:
        """A ModelError that names this node and op."""
        return ModelError(f"{label(self.proto)}: {message}")

    @property
    def importer(self) -> Importer:
        """The importer at work, for ops with bodies."""
        return self._importer

    def uses(self, expr: Expr) -> None:
        """Tells that the node's results are made of ``expr``, though it is no operand."""
        self._use(expr)

    def attr(self, name: str, default: Any = None) -> Any:
        """Value of an attribute; strings as str, tensors as NumPy arrays."""
        if name not in self._attributes:
            return default
        value = onnx.helper.get_attribute_value(self._attributes[name])
        if isinstance(value, bytes):
            return value.decode()
        if isinstance(value, onnx.TensorProto):
            return onnx.numpy_helper.to_array(value)
        return list(value) if self._attributes[name].type >= onnx.AttributeProto.FLOATS else value

    def has(self, i: int) -> bool:
        """Is optional operand i given?"""
        return i < len(self.proto.input) and self.proto.input[i] != ""

    @property
    def operand_count(self) -> int:
        return len(self.proto.input)

    def wants(self, i: int) -> bool:
        """Is result i used by name?"""
        return i < len(self.proto.output) and self.proto.output[i] != ""

    def tensor(self, i: int) -> Expr:
        """Operand i as a typed expression.

        A stored float tensor with at least one axis becomes a parameter; scalars and values of
        Constant nodes stay constants.
        """
        return self._use(self._importer.tensor(self._name(i)))

    def sequence(self, i: int, by_row: bool = False) -> TensorSequence:
        """Operand i, a sequence of tensors; ``by_row``: its rows are for :meth:`row` alone."""
        found = self._importer.sequence(self._name(i), by_row)
        for tensor in found.tensors:
            self._use(tensor)
        return found

    def value(self, i: int) -> Expr | TensorSequence:
        """Operand i, a tensor or a sequence of tensors."""
        is_sequence = self._importer.values[self._name(i)].sequence is not None
        return self.sequence(i) if is_sequence else self.tensor(i)

    def row(self, rows: Expr, i: int) -> Expr | None:
        """The row of ``rows`` at operand i, where that is the number of a loop's iteration."""
        return self._importer.row_at(rows, self._name(i))

    def weight(self, i: int) -> Expr:
        """Operand i, a parameter also where it comes from a Constant node or is a scalar."""
        return self._use(self._importer.weight(self._name(i)))

    def running(self, i: int) -> Expr:
        """Operand i as a running statistic: state that is not trained."""
        return self._use(self._importer.running(self._name(i)))

    def update_running(self, i: int, value: Expr) -> None:
        """Make ``value`` the next step's running statistic of operand i."""
        self.updates[self._name(i)] = value

    def random_key(self) -> tuple[Expr, int]:
        """The step's random key (uint32, (2,)) and a stream number of this node's own."""
        key, stream = self._importer.random_key()
        return self._use(key), stream

    def constant(self, i: int, default: Any = None) -> np.ndarray:
        """Operand i as a NumPy array; it must be known before the first step."""
        if not self.has(i):
            return default
        data = self._importer.values[self._name(i)].data
        if data is None:
            raise self.error(
                f"input {i} ('{self._name(i)}') must be a constant; it depends on the model's input"
            )
        return data

    def known(self, i: int) -> np.ndarray | None:
        """Operand i as a NumPy array if it is known before the first step."""
        return self._importer.values[self._name(i)].data

    def ints(self, i: int, default: list[int] | None = None) -> list[int] | None:
        """Constant operand i as a list of ints."""
        data = self.constant(i)
        return default if data is None else [int(v) for v in np.ravel(data)]

    def shape(self, i: int) -> tuple[int, ...]:
        """Static shape of operand i."""
        return self._importer.shape(self._name(i))

    def typed(self, expr: Expr) -> Expr:
        """``expr`` with its type filled in, for converters that need an intermediate's shape."""
        return infer_local(expr)

    def shape_of(self, expr: Expr) -> tuple[int, ...]:
        return shape_of(infer_local(expr))

    def dtype(self, i: int) -> str:
        data = self._importer.values[self._name(i)].data
        return str(data.dtype) if data is not None else dtype_of(self.tensor(i))

    def _use(self, expr: Expr) -> Expr:
        self.used.append(expr)
        return expr

    def _name(self, i: int) -> str:
        if not self.has(i):
            raise self.error(f"input {i} is missing")
        return self.proto.input[i]
