"""If, Loop and Scan."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
from tvm import relay

from ..control_flow.definitions import Branch, Loop, TreeFold, Type, stacked_type
from ..relay_graph import Expr, calls_op, infer_local, is_dynamic
from .node import Node, label
from .registry import converter
from .sequences import Carried, TensorSequence
from .subgraph import Captures, SubgraphImporter, subgraph_importer, typed_variable

Results = list[Expr | TensorSequence | None]
ENDLESS = np.iinfo("int64").max


@converter("If")
def if_(node: Node) -> Results:
    captures = Captures()
    importer = node.importer
    results = []
    for attribute in ("then_branch", "else_branch"):
        body = subgraph_importer(node.proto, attribute, importer, captures)
        results.append(body.run_body())
    outputs = node.proto.output
    forms = [_form_of(node, *pair) for pair in zip(outputs, *results, strict=True)]
    arms = [_tensors(arm) for arm in results]
    names = [
        name
        for name, form in zip(outputs, forms, strict=True)
        for _ in ([name] if form is None else form)
    ]
    for name, then, other in zip(names, *arms, strict=True):
        _check_same(node, f"result '{name}' of the two branches", then, other)
    params = list(captures.variables.values())
    graph = importer.model.control_flow.graph
    branch = Branch(graph(params, arms[0]), graph(params, arms[1]))
    args = [_scalar(node.tensor(0)), *captures.variables]
    types = [e.checked_type for e in arms[0]]
    found = iter(_results(node, "branch", branch, args, types))
    return [
        next(found) if form is None else TensorSequence([next(found) for _ in form])
        for form in forms
    ]


@converter("Loop")
def loop(node: Node) -> Results:
    trip = _scalar(node.tensor(0)) if node.has(0) else constant(ENDLESS, "int64")
    condition = _scalar(node.tensor(1)) if node.has(1) else constant(True, "bool")
    carried = [
        Carried(node, node.proto.input[i], node.value(i)) for i in range(2, node.operand_count)
    ]
    body = _LoopBody(node, [e for slot in carried for e in slot.initial])
    body.names = [slot.name for slot in carried for _ in slot.initial]
    inputs = body.importer.graph.input
    body.importer.bind(inputs[0].name, _of_rank(body.index, inputs[0]))
    body.importer.bind(inputs[1].name, _of_rank(body.condition, inputs[1]))
    states = iter(body.states)
    for info, slot in zip(inputs[2:], carried, strict=True):
        slot.bind(body.importer, info.name, states)
    first, *found = body.importer.run_body()
    results = [_scalar(first)]
    for slot, result in zip(carried, found, strict=False):
        results += slot.next(result)
    results += _rows(node, found[len(carried) :])
    results += [row for slot in carried for row in slot.rows]
    ends_by_count = not node.has(1) or _is_true(node.known(1))
    ends_by_count = ends_by_count and _always(results[0], body.condition)
    length = None
    if ends_by_count:
        results[0] = body.condition
        known = node.known(0) if node.has(0) else None
        length = None if known is None else max(0, int(np.ravel(known)[0]))
    out = body.call([trip, condition], results, {}, length)
    after = iter(out)
    ends = [slot.after(after) for slot in carried]
    outputs = [next(after) for _ in found[len(carried) :]]
    appended = iter(list(after))
    for slot, end in zip(carried, ends, strict=True):
        if slot.rows:
            end.rows = next(appended)
    return [*ends, *outputs]


@converter("Scan")
def scan(node: Node) -> Results:
    count = int(node.attr("num_scan_inputs"))
    states = node.operand_count - count
    initial = [node.tensor(i) for i in range(states)]
    axes = node.attr("scan_input_axes", [0] * count)
    backwards = node.attr("scan_input_directions", [0] * count)
    scanned = [
        _first_axis(node.tensor(states + k), axes[k], bool(backwards[k])) for k in range(count)
    ]
    body = _LoopBody(node, initial)
    inputs = body.importer.graph.input
    for info, state in zip(inputs, body.states, strict=False):
        body.importer.bind(info.name, state)
    rows = {}
    for info, tensor in zip(inputs[states:], scanned, strict=True):
        kind = tensor.checked_type
        row = relay.TensorType(list(kind.shape)[1:], kind.dtype)
        rows[typed_variable("row", row)] = tensor
        body.importer.bind(info.name, list(rows)[-1])
    results = [body.condition, *_rows(node, body.importer.run_body())]
    first = scanned[0]
    length = None if is_dynamic(first) else int(first.checked_type.shape[0])
    trip = _length(first) if length is None else constant(length, "int64")
    found = body.call([trip, constant(True, "bool")], results, rows, length)
    outputs = len(found) - states
    axes = node.attr("scan_output_axes", [0] * outputs)
    backwards = node.attr("scan_output_directions", [0] * outputs)
    for k in range(outputs):
        expr = found[states + k]
        if expr is not None:
            found[states + k] = _from_first_axis(expr, axes[k], bool(backwards[k]))
    return found


@converter("TreeFold")
def tree_fold(node: Node) -> list[Expr | None]:
    """Of the domain tvm_dtr: see TreeFold of tvm_dtr.control_flow. Inputs: root, left, right, rows.

    Attribute ``leaf`` is a graph of one input (a row), ``node`` one of the states of the left child
    and those of the right one; both give the states.
    """
    captures = Captures()
    leaf = subgraph_importer(node.proto, "leaf", node.importer, captures)
    inner = subgraph_importer(node.proto, "node", node.importer, captures)
    rows = node.tensor(3)
    kind = rows.checked_type
    row = typed_variable("row", relay.TensorType(list(kind.shape)[1:], kind.dtype))
    leaf.bind(leaf.graph.input[0].name, row)
    states = _rows(node, leaf.run_body())
    below = [typed_variable("below", e.checked_type) for _ in range(2) for e in states]
    for info, variable in zip(inner.graph.input, below, strict=True):
        inner.bind(info.name, variable)
    results = _rows(node, inner.run_body())
    for name, a, b in zip(node.proto.output, states, results, strict=True):
        _check_same(node, f"'{name}' of a leaf and of a node", a, b)
    captured = list(captures.variables.values())
    graph = node.importer.model.control_flow.graph
    fold = TreeFold(
        graph([row, *captured], states), graph([*below, *captured], results), len(states)
    )
    node.importer.note_tree(*node.proto.input[:3])
    args = [_scalar(node.tensor(0)), node.tensor(1), node.tensor(2), rows, *captures.variables]
    return _results(node, "tree", fold, args, [e.checked_type for e in states])


class _LoopBody:
    """The body of a Loop or Scan while it is imported."""

    def __init__(self, node: Node, initial: Sequence[Expr]) -> None:
        self.node, self.initial = node, list(initial)
        self.captures = Captures()
        self.importer: SubgraphImporter = subgraph_importer(
            node.proto, "body", node.importer, self.captures
        )
        self.index = typed_variable("iteration", relay.TensorType((), "int64"))
        self.condition = typed_variable("condition", relay.TensorType((), "bool"))
        self.states = [typed_variable("state", e.checked_type) for e in initial]
        self.importer.index = self.index
        self.names: list[str] = []  # of the states, for messages; else those of the node's inputs

    def call(
        self,
        head: list[Expr],
        results: list[Expr],
        rows: dict[relay.Var, Expr],
        length: int | None,
    ) -> list[Expr | None]:
        """The call of the loop; ``rows`` are the scanned tensors by the variable of their row."""
        count = len(self.states)
        names = self.names or (self.node.proto.input[-count:] if count else [])
        for name, state, new in zip(names, self.states, results[1:], strict=False):
            _check_same(self.node, f"the loop's state '{name}' and its next value", state, new)
        scans = {**rows, **{variable: outer for outer, variable in self.importer.rows.items()}}
        captured = self.captures.variables
        params = [self.index, self.condition, *self.states, *scans, *captured.values()]
        graph = self.importer.model.control_flow.graph(params, results)
        body = Loop(graph, count, len(scans), length)
        args = [*head, *self.initial, *scans.values(), *captured]
        kinds = [e.checked_type for e in results[1:]]
        types = kinds[:count] + [stacked_type(kind, length) for kind in kinds[count:]]
        return _results(self.node, "loop", body, args, types)


def _results(
    node: Node, kind: str, definition: Branch | Loop | TreeFold, args: list[Expr], types: list[Type]
) -> list[Expr | None]:
    span = relay.Span(relay.SourceName(label(node.proto)), 0, 0, 0, 0)
    for arg in args:
        node.uses(arg)
    call = node.importer.model.control_flow.call(kind, definition, args, types, span)
    return [infer_local(relay.TupleGetItem(call, i)) for i in range(len(types))]


def _rows(node: Node, results: Sequence[Expr | TensorSequence]) -> list[Expr]:
    """Results that must be tensors: rows that are stacked, states of a Scan or of a tree."""
    for result in results:
        if isinstance(result, TensorSequence):
            raise node.error("its body gives a sequence where a tensor is needed: concatenate it")
    return list(results)


def _tensors(results: Sequence[Expr | TensorSequence]) -> list[Expr]:
    return [e for r in results for e in (r.items if isinstance(r, TensorSequence) else [r])]


def _form_of(
    node: Node, name: str, then: Expr | TensorSequence, other: Expr | TensorSequence
) -> list[Expr] | None:
    """None for a tensor; the items of a sequence, of which both branches need as many."""
    kinds = {isinstance(then, TensorSequence), isinstance(other, TensorSequence)}
    if kinds == {False}:
        return None
    if len(kinds) == 2 or then.rows is not None or other.rows is not None:
        raise node.error(
            f"result '{name}' is a sequence that a loop has made, or one in one branch alone; "
            "concatenate it inside of both"
        )
    if len(then.items) != len(other.items):
        raise node.error(
            f"result '{name}' has {len(then.items)} tensors in one branch and "
            f"{len(other.items)} in the other; both must have as many"
        )
    return then.items


def _check_same(node: Node, what: str, left: Expr, right: Expr) -> None:
    a, b = left.checked_type, right.checked_type
    if a.dtype != b.dtype or [str(n) for n in a.shape] != [str(n) for n in b.shape]:
        raise node.error(
            f"{what} must have the same shape and type, but are {_form(a)} and {_form(b)}"
        )


def _form(kind: Type) -> str:
    return f"{kind.dtype}[{', '.join(str(n) for n in kind.shape)}]"


def constant(value: object, dtype: str) -> Expr:
    return infer_local(relay.const(value, dtype))


def _scalar(expr: Expr) -> Expr:
    """Of a tensor of one element, that element."""
    return infer_local(relay.reshape(expr, ())) if expr.checked_type.shape else expr


def _of_rank(scalar: Expr, info: onnx.ValueInfoProto) -> Expr:
    """The scalar as the body declares it: (), or (1,)."""
    if len(info.type.tensor_type.shape.dim) == 1:
        return infer_local(relay.reshape(scalar, (1,)))
    return scalar


def _is_true(data: np.ndarray | None) -> bool:
    return data is not None and bool(np.ravel(data)[0])


def _always(result: Expr, condition: relay.Var) -> bool:
    """Whether the next condition is the last one, or constantly true."""
    while calls_op(result, "reshape"):
        result = result.args[0]
    if isinstance(result, relay.Constant):
        return bool(result.data.numpy().ravel()[0])
    return bool(result.same_as(condition))


def _length(tensor: Expr) -> Expr:
    shape = relay.shape_of(tensor, "int64")
    return infer_local(relay.take(shape, relay.const(0, "int64"), mode="clip"))


def _first_axis(tensor: Expr, axis: int, backwards: bool) -> Expr:
    rank = len(tensor.checked_type.shape)
    axis %= rank
    if axis:
        order = [axis, *(i for i in range(rank) if i != axis)]
        tensor = infer_local(relay.transpose(tensor, order))
    return infer_local(relay.reverse(tensor, 0)) if backwards else tensor


def _from_first_axis(tensor: Expr, axis: int, backwards: bool) -> Expr:
    rank = len(tensor.checked_type.shape)
    if backwards:
        tensor = infer_local(relay.reverse(tensor, 0))
    if axis % rank:
        order = list(range(1, rank))
        order.insert(axis % rank, 0)
        tensor = infer_local(relay.transpose(tensor, order))
    return tensor
