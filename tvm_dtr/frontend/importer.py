"""ONNX graph -> Relay in graph form, ready for training."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import onnx
from tvm import relay

from ..control_flow.definitions import Definitions
from ..errors import DTRError, ModelError
from ..progress import Progress, counted
from ..relay_graph import Expr, TypeInferenceError, infer_local, is_dynamic, shape_of, stamp
from ..training import TensorSpec
from .checks import check_size, checked_shapes, refusing_malformed_graphs
from .folding import evaluate
from .load import load_model
from .node import Node, label
from .precision import cast_model, check_dtype, check_types
from .registry import CONVERTERS
from .sequences import TensorSequence
from .values import Value

Shapes = Mapping[str, Sequence[int | str]]

# State of models with dropout: uint32 [seed, step]; the seed may be set before the first step.
RANDOM_KEY = "random_key"
VARYING = "tvm_dtr.varying"  # metadata of a model, names of axes separated by commas
OWN_OPS = {("tvm_dtr", "TreeFold")}


@dataclass
class ImportedModel:
    """An ONNX model as typed Relay expressions over variables."""

    inputs: list[TensorSpec] = field(default_factory=list)
    variables: dict[str, relay.Var] = field(default_factory=dict)
    state: dict[str, np.ndarray] = field(default_factory=dict)
    parameter_names: list[str] = field(default_factory=list)
    running_updates: dict[str, Expr] = field(default_factory=dict)
    outputs: list[tuple[str, Expr]] = field(default_factory=list)
    sources: dict[str, tuple[str, str]] = field(default_factory=dict)
    control_flow: Definitions = field(default_factory=Definitions)


def import_model(
    model: str | os.PathLike[str] | onnx.ModelProto,
    shapes: Shapes | None = None,
    dtype: str | None = None,
    training: bool = True,
    progress: Progress | None = None,
) -> ImportedModel:
    """Import an ONNX model for training, or else for inference.

    ``shapes`` gives or overrides the shapes of graph inputs by name. Float initializers become
    parameters, in the order of first use; running statistics become state. Raises ModelError for
    a file that is no model, dynamic dimensions without a shape, ops that are not supported.
    ``dtype`` casts all floating-point tensors; without it they keep their types. ``progress``
    is told of the nodes.
    """
    check_dtype(dtype)
    shapes = checked_shapes(shapes or {})
    proto = load_model(model)
    with refusing_malformed_graphs():
        if dtype is not None:
            proto = cast_model(proto, dtype)
        check_types(proto)
        importer = Importer(proto, shapes, training)
        nodes = importer.begin()
    for node in counted(nodes, "importing nodes", progress):
        with refusing_malformed_graphs():
            importer.convert(node)
    with refusing_malformed_graphs():
        return importer.finished()


def _varying(model: onnx.ModelProto) -> set[str]:
    """Names of axes that the model's metadata declares to change from step to step."""
    found = {entry.key: entry.value for entry in model.metadata_props}
    return set(filter(None, found.get(VARYING, "").split(",")))


class Importer:
    """Walks the nodes that the outputs need, in order, and converts each."""

    def __init__(
        self,
        model: onnx.ModelProto,
        shapes: Mapping[str, Sequence[int | str]],
        training: bool = True,
    ) -> None:
        self.training = training
        self.graph = model.graph
        self.shapes = shapes
        self.values: dict[str, Value] = {}
        self.model = ImportedModel()
        self.streams = 0
        self.varying = _varying(model)
        self.opset = max(
            (o.version for o in model.opset_import if o.domain in ("", "ai.onnx")), default=1
        )

    def begin(self) -> list[onnx.NodeProto]:
        """The nodes to convert, in this order."""
        self._add_initializers()
        self._add_inputs()
        return self._needed_nodes()

    def finished(self) -> ImportedModel:
        for output in self.graph.output:
            self.model.outputs.append((output.name, self.tensor(output.name)))
        return self.model

    # Values

    def tensor(self, name: str) -> Expr:
        value = self._value(name)
        if value.sequence is not None:
            raise ModelError(
                f"'{name}' is a sequence of tensors where a tensor is needed; ConcatFromSequence "
                "makes one of it, SequenceAt takes one out"
            )
        if value.expr is None:
            assert value.data is not None
            if value.trainable:
                return self.weight(name)
            check_size(f"tensor '{name}'", value.data.shape)
            value.expr = infer_local(relay.const(value.data, str(value.data.dtype)))
        return value.expr

    def sequence(self, name: str, by_row: bool = False) -> TensorSequence:
        found = self._value(name).sequence
        if found is None:
            raise ModelError(f"tensor '{name}' is used as a sequence of tensors, and is none")
        return found

    def row_at(self, rows: Expr, index: str) -> Expr | None:
        return None  # no loop is around

    def weight(self, name: str) -> Expr:
        value = self._value(name)
        if value.data is None or value.data.dtype.kind != "f":
            return self.tensor(name)
        if not isinstance(value.expr, relay.Var):
            value.expr = self._add_state(value)
            self.model.parameter_names.append(value.name)
        return value.expr

    def running(self, name: str) -> Expr:
        value = self._value(name)
        if name in self.model.running_updates:  # a layer applied twice updates twice
            return self.model.running_updates[name]
        if value.expr is None:
            value.expr = self._add_state(value)
        return value.expr

    def note_tree(self, root: str, left: str, right: str) -> None:
        """Where the three are inputs of the model, steps check that they are a tree."""
        inputs = self.model.inputs
        if {root, left, right} <= {spec.name for spec in inputs}:
            inputs[:] = [
                replace(s, children=(left, right)) if s.name == root else s for s in inputs
            ]

    def random_key(self) -> tuple[Expr, int]:
        """The random key, (seed, number of the step), and a stream number not yet given out."""
        if not self.streams:
            if RANDOM_KEY in self.values:
                raise ModelError(
                    f"the model has a tensor '{RANDOM_KEY}'; dropout needs that name, rename it"
                )
            value = Value(RANDOM_KEY, data=np.zeros(2, "uint32"))
            value.expr = self._add_state(value)
            self.values[RANDOM_KEY] = value
            next_step = relay.const(np.array([0, 1]), "uint32")
            self.model.running_updates[RANDOM_KEY] = infer_local(relay.add(value.expr, next_step))
        self.streams += 1
        return self.tensor(RANDOM_KEY), self.streams

    def shape(self, name: str) -> tuple[int, ...]:
        value = self._value(name)
        return tuple(value.data.shape) if value.data is not None else shape_of(self.tensor(name))

    def _is_dynamic(self, name: str) -> bool:
        return self._value(name).data is None and is_dynamic(self.tensor(name))

    def add_stored(self, tensor: onnx.TensorProto, owner: str) -> None:
        """A stored tensor of a body: one of the model's like any other."""
        if tensor.name in self.values:
            raise ModelError(f"{owner}: its body stores '{tensor.name}', which is taken; rename it")
        data = onnx.numpy_helper.to_array(tensor)
        self.values[tensor.name] = Value(tensor.name, data=data, stored=True)

    def _value(self, name: str) -> Value:
        if name not in self.values:
            raise ModelError(f"tensor '{name}' is used but never defined; the ONNX graph is broken")
        return self.values[name]

    def _add_state(self, value: Value) -> relay.Var:
        assert value.data is not None
        check_size(f"tensor '{value.name}'", value.data.shape)
        self.model.state[value.name] = value.data
        return self._add_variable(value.name, value.data.shape, str(value.data.dtype))

    def _add_variable(self, name: str, shape: Sequence[int | str], dtype: str) -> relay.Var:
        sizes = [relay.Any() if isinstance(n, str) else n for n in shape]
        variable = infer_local(relay.var(name, shape=sizes, dtype=dtype))
        self.model.variables[name] = variable
        return variable

    # Graph

    def _add_initializers(self) -> None:
        for tensor in self.graph.initializer:
            data = onnx.numpy_helper.to_array(tensor)
            self.values[tensor.name] = Value(tensor.name, data=data, stored=True)

    def _add_inputs(self) -> None:
        inputs = [i for i in self.graph.input if i.name not in self.values]
        names = [i.name for i in inputs]
        for name in self.shapes:
            if name not in names:
                raise ModelError(
                    f"shapes: the model has no input '{name}'; its inputs are {', '.join(names)}"
                )
        for info in inputs:
            if names.count(info.name) > 1:
                raise ModelError(f"the model has several inputs called '{info.name}'")
            self._add_input(info)

    def _add_input(self, info: onnx.ValueInfoProto) -> None:
        if not info.type.HasField("tensor_type"):
            raise ModelError(f"input '{info.name}' is not a tensor; only tensors can be fed")
        kind = info.type.tensor_type.elem_type
        dtype = str(onnx.helper.tensor_dtype_to_np_dtype(kind))
        shape = self._input_shape(info)
        check_size(f"input '{info.name}'", [n for n in shape if isinstance(n, int)])
        self.model.inputs.append(TensorSpec(info.name, shape, dtype))
        variable = self._add_variable(info.name, shape, dtype)
        self.values[info.name] = Value(info.name, variable)

    def _input_shape(self, info: onnx.ValueInfoProto) -> tuple[int | str, ...]:
        name, tensor = info.name, info.type.tensor_type
        dims = list(tensor.shape.dim)
        given = self.shapes.get(name)
        if given is None and not tensor.HasField("shape"):
            raise ModelError(f"input '{name}' has no shape; give one: --shape {name}=1,3,32,32")
        if given is not None:
            if tensor.HasField("shape") and len(given) != len(dims):
                raise ModelError(
                    f"shapes: input '{name}' has {len(dims)} axes, got {len(given)} "
                    f"({tuple(given)})"
                )
            if any(not isinstance(n, str) and n < 1 for n in given):
                raise ModelError(f"shapes: input '{name}' needs sizes >= 1, got {tuple(given)}")
            return tuple(given)
        for axis, dim in enumerate(dims):
            if dim.dim_value < 1 and dim.dim_param not in self.varying:
                sizes = [str(d.dim_value) if d.dim_value > 0 else "N" for d in dims]
                symbol = f" ('{dim.dim_param}')" if dim.dim_param else ""
                raise ModelError(
                    f"input '{name}': axis {axis}{symbol} has no fixed size; give the shape, e.g. "
                    f"--shape {name}={','.join(sizes)} or shapes={{'{name}': ({', '.join(sizes)})}}"
                )
        return tuple(dim.dim_value or dim.dim_param for dim in dims)

    def _needed_nodes(self) -> list[onnx.NodeProto]:
        wanted = {output.name for output in self.graph.output}
        needed = []
        for node in reversed(self.graph.node):
            if wanted.intersection(node.output):
                needed.append(node)
                wanted.update(used_names(node))
        return needed[::-1]

    def convert(self, proto: onnx.NodeProto) -> None:
        if self._pass_on(proto) or self._fold(proto):
            return
        node = Node(proto, self, self.opset)
        own = (proto.domain, proto.op_type) in OWN_OPS
        if proto.domain not in ("", "ai.onnx") and not own:
            raise node.error(f"op {proto.op_type} of domain '{proto.domain}' is not supported")
        if proto.op_type not in CONVERTERS:
            raise node.error(
                f"op {proto.op_type} is not supported for training "
                "(docs/operators.md lists those that are)"
            )
        try:
            results = CONVERTERS[proto.op_type](node)
            results = results if isinstance(results, list) else [results]
            self._define(node, results)
        except DTRError:
            raise
        except TypeInferenceError as error:
            raise node.error(f"operands do not fit: {error}") from error
        except Exception as error:
            first = (str(error).strip().splitlines() or [type(error).__name__])[-1]
            raise node.error(f"cannot be converted ({first})") from error

    def _define(self, node: Node, results: list[Expr | TensorSequence | None]) -> None:
        proto = node.proto
        source = label(proto)
        self.model.sources[source] = (proto.name, proto.op_type)
        made = [e for r in results if r is not None for e in _tensors(r)]
        stamped = stamp([*made, *node.updates.values()], node.used, source)
        table = dict(zip(made, stamped, strict=False))
        for name, result in zip(proto.output, results, strict=False):
            if name and isinstance(result, TensorSequence):
                found = result.mapped(lambda e: infer_local(table[e]))
                self.values[name] = Value(name, sequence=found)
            elif name and result is not None:
                typed = infer_local(table[result])
                if not is_dynamic(typed):
                    check_size(f"{source} gives tensor '{name}', which", shape_of(typed))
                self.values[name] = Value(name, typed)
        for name, new in zip(node.updates, stamped[len(made) :], strict=True):
            self.model.running_updates[self._value(name).name] = infer_local(new)

    def _pass_on(self, proto: onnx.NodeProto) -> bool:
        """Identity gives a second name to a value; a shared weight stays one parameter.

        PyTorch's exporter also merges weights that merely look alike before training, such as the
        zeros of all biases and running means. A tensor of one repeated value is therefore taken
        for a merged one and split again, under the name that it had.
        """
        if proto.op_type != "Identity" or proto.domain not in ("", "ai.onnx"):
            return False
        value, name = self._value(proto.input[0]), proto.output[0]
        if value.trainable and value.data is not None and np.ptp(value.data) == 0:
            value = Value(name, data=value.data.copy(), stored=True)
        self.values[name] = value
        return True

    def _fold(self, proto: onnx.NodeProto) -> bool:
        """Compute now what depends on constants alone, such as the operands of Reshape.

        A tensor of a stored shape and one value is a weight whose values were left out; a shape
        that the graph computes belongs to a constant, such as the first state of an LSTM.
        """
        if proto.domain not in ("", "ai.onnx") or "Sequence" in proto.op_type:
            return False
        if proto.op_type in ("Shape", "Size") and not self._is_dynamic(proto.input[0]):
            shape = np.array(self.shape(proto.input[0]), "int64")
            bounds = Node(proto, self, self.opset)
            data = shape[bounds.attr("start", 0) : bounds.attr("end")]
            data = data if proto.op_type == "Shape" else shape.prod()
            self.values[proto.output[0]] = Value(proto.output[0], data=data)
            return True
        operands = [self._value(name) for name in proto.input if name]
        if any(v.data is None or isinstance(v.expr, relay.Var) for v in operands):
            return False
        if any(v.trainable for v in operands):
            return False  # a weight that is reshaped or transposed stays trainable
        names = [name for name in proto.input if name]
        results = evaluate(proto, {n: self.values[n].data for n in names}, self.opset)
        stored = proto.op_type == "ConstantOfShape" and all(v.stored for v in operands)
        for name, data in zip(proto.output, results, strict=True):
            self.values[name] = Value(name, data=data, stored=stored)
        return True


def _tensors(result: Expr | TensorSequence) -> list[Expr]:
    """All that a result is made of."""
    if isinstance(result, TensorSequence):
        return [*result.tensors, *result.appended]
    return [result]


def used_names(node: onnx.NodeProto) -> set[str]:
    """Tensors that a node reads, those that its bodies take from around them included."""
    names = {name for name in node.input if name}
    for attribute in node.attribute:
        if attribute.type == onnx.AttributeProto.GRAPH:
            body = attribute.g
            inside = {name for inner in body.node for name in used_names(inner)}
            names |= inside | {output.name for output in body.output}
    return names
