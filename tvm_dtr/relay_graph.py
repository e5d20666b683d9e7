"""Walks over Relay in graph form (a DAG of calls, no lets), without Python recursion.

Deep networks have tens of thousands of calls in a row; every walk here keeps its own stack.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from tvm import IRModule, TVMError, relay, tir
from tvm.ir.diagnostics import override_renderer
from tvm.relay.expr import ExprWithOp as Expr

from .relay_facts import address, called, children, name_of, remembered


def post_order(roots: Iterable[Expr], known: Iterable[Expr] = ()) -> list[Expr]:
    """All expressions below ``roots``, each once, operands before users.

    The order is the one of a depth-first evaluation. Nothing at or below ``known`` is visited.
    """
    seen = set(map(address, known))
    order: list[Expr] = []
    stack = [(root, False) for root in reversed(list(roots))]
    while stack:
        expr, ready = stack.pop()
        if ready:
            order.append(expr)
        elif (key := address(expr)) not in seen:
            seen.add(key)
            stack.append((expr, True))
            stack.extend((child, False) for child in reversed(children(expr)))
    return order


class ExprMap:
    """What is known of expressions, told apart by identity. (A dict asks TVM for each hash.)"""

    def __init__(self, pairs: Iterable[tuple[Expr, Any]] = ()) -> None:
        self.entries = {address(expr): (expr, value) for expr, value in pairs}

    def __getitem__(self, expr: Expr) -> Any:
        return self.entries[address(expr)][1]

    def __setitem__(self, expr: Expr, value: Any) -> None:
        self.entries[address(expr)] = (expr, value)  # held, so that its address stays its own

    def __contains__(self, expr: Expr) -> bool:
        return address(expr) in self.entries

    def get(self, expr: Expr, default: Any = None) -> Any:
        entry = self.entries.get(address(expr))
        return default if entry is None else entry[1]


def rebuild(expr: Expr, mapped: Callable[[Expr], Expr], span: relay.Span | None = None) -> Expr:
    """``expr`` with its operands replaced by ``mapped`` of them; itself if none changed."""
    old = children(expr)
    new = [mapped(child) for child in old]
    restamp = span is not None and isinstance(expr, relay.Call) and expr.span is None
    if not restamp and all(a is b or a.same_as(b) for a, b in zip(old, new, strict=True)):
        return expr
    if isinstance(expr, relay.Call):
        span = span if restamp else expr.span
        op = called(expr)
        op = new.pop(0) if isinstance(op, relay.TupleGetItem) else op
        return relay.Call(op, new, expr.attrs, expr.type_args, span)
    if isinstance(expr, relay.Tuple):
        return relay.Tuple(new)
    return relay.TupleGetItem(new[0], expr.index)


def substitute(
    roots: list[Expr], replacements: dict[Expr, Expr], span: relay.Span | None = None
) -> list[Expr]:
    """``roots`` with expressions replaced; calls without a source get ``span``."""
    return _substitute(roots, ExprMap(replacements.items()), span)


def _substitute(roots: list[Expr], table: ExprMap, span: relay.Span | None) -> list[Expr]:
    for expr in post_order(roots, known=[known for known, _ in table.entries.values()]):
        table[expr] = rebuild(expr, table.__getitem__, span)
    return [table[root] for root in roots]


def stamp(roots: list[Expr], known: Iterable[Expr], source: str) -> list[Expr]:
    """Write ``source`` (an ONNX node) as the span of every call of ``roots`` above ``known``."""
    span = relay.Span(relay.SourceName(source), 0, 0, 0, 0)
    return _substitute(roots, ExprMap((expr, expr) for expr in known), span)


def source_of(expr: Expr) -> str | None:
    """The source written by :func:`stamp`, or None."""
    return remembered("source", expr, _source_of)


def _source_of(expr: Expr) -> str | None:
    span = getattr(expr, "span", None)
    return span.source_name.name if span is not None else None


def calls_op(expr: Expr, *names: str) -> bool:
    """Whether ``expr`` is a call of a Relay op of one of these names."""
    return isinstance(expr, relay.Call) and name_of(expr) in names


class DynamicShapeError(Exception):
    """A size is asked for that is known at run time only."""


def is_tensor(expr: Expr) -> bool:
    """Whether a type-inferred expression is one tensor, not a tuple of them."""
    return remembered("is_tensor", expr, _is_tensor)


def _is_tensor(expr: Expr) -> bool:
    return isinstance(expr.checked_type, relay.TensorType)


def tensor_type(expr: Expr) -> tuple[tuple[int, ...], str]:
    """Shape and dtype of a type-inferred tensor expression."""
    return remembered("type", expr, _tensor_type)


def _tensor_type(expr: Expr) -> tuple[tuple[int, ...], str]:
    checked = expr.checked_type
    shape = checked.shape[:]
    if any(isinstance(d, tir.Any) for d in shape):
        raise DynamicShapeError(f"the size of a {checked.dtype} tensor is known at run time only")
    return tuple(int(d) for d in shape), checked.dtype


def is_dynamic(expr: Expr) -> bool:
    """Whether some size of a tensor expression is known at run time only."""
    try:
        tensor_type(expr)
    except DynamicShapeError:
        return True
    return False


def shape_of(expr: Expr) -> tuple[int, ...]:
    """Static shape of a type-inferred tensor expression."""
    return tensor_type(expr)[0]


def dtype_of(expr: Expr) -> str:
    """Dtype of a type-inferred tensor expression."""
    return remembered("dtype", expr, _dtype_of)


def _dtype_of(expr: Expr) -> str:
    return expr.checked_type.dtype


class TypeInferenceError(Exception):
    """Relay rejects an expression; the message is TVM's first diagnostic."""


def _quietly(run: Callable[[], object]) -> object:
    """Run a TVM pass; its diagnostics become an exception instead of text on the terminal."""
    messages: list[str] = []
    override_renderer(lambda context: messages.extend(d.message for d in context.diagnostics))
    try:
        return run()
    except TVMError as error:
        lines = str(error).strip().splitlines() or [type(error).__name__]
        text = messages[0] if messages else lines[-1]
        raise TypeInferenceError(" ".join(text.split())) from error
    finally:
        override_renderer(None)


def infer_local(expr: Expr) -> Expr:
    """Fill the type of ``expr`` from the types of its typed operands, and return it."""
    _quietly(lambda: relay.transform.InferTypeLocal(expr))
    return expr


def infer_module(module: IRModule) -> IRModule:
    """The module with every expression typed."""
    typed = _quietly(lambda: relay.transform.InferType()(module))
    assert isinstance(typed, IRModule)
    return typed


def infer_function(function: relay.Function) -> relay.Function:
    """The function with every expression typed (a copy)."""
    return infer_module(IRModule.from_expr(function))["main"]
