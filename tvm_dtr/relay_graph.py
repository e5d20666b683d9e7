"""Walks over Relay in graph form (a DAG of calls, no lets), without Python recursion.

Deep networks have tens of thousands of calls in a row; every walk here keeps its own stack.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from tvm import IRModule, TVMError, relay, tir
from tvm.ir import Op
from tvm.ir.diagnostics import override_renderer
from tvm.relay.expr import ExprWithOp as Expr


def children(expr: Expr) -> list[Expr]:
    """What ``expr`` is computed from, in evaluation order."""
    if isinstance(expr, relay.Call):
        return [expr.op, *expr.args] if _calls_value(expr) else list(expr.args)
    if isinstance(expr, relay.Tuple):
        return list(expr.fields)
    if isinstance(expr, relay.TupleGetItem):
        return [expr.tuple_value]
    return []


def _calls_value(call: relay.Call) -> bool:
    """Whether what is called is itself computed: a closure, such as a pullback."""
    return isinstance(call.op, relay.TupleGetItem)


def post_order(roots: Iterable[Expr], known: Iterable[Expr] = ()) -> list[Expr]:
    """All expressions below ``roots``, each once, operands before users.

    The order is the one of a depth-first evaluation. Nothing at or below ``known`` is visited.
    """
    seen = set(known)
    order: list[Expr] = []
    stack = [(root, False) for root in reversed(list(roots))]
    while stack:
        expr, ready = stack.pop()
        if ready:
            order.append(expr)
        elif expr not in seen:
            seen.add(expr)
            stack.append((expr, True))
            stack.extend((child, False) for child in reversed(children(expr)))
    return order


def rebuild(expr: Expr, mapped: Callable[[Expr], Expr], span: relay.Span | None = None) -> Expr:
    """``expr`` with its operands replaced by ``mapped`` of them; itself if none changed."""
    old = children(expr)
    new = [mapped(child) for child in old]
    restamp = span is not None and isinstance(expr, relay.Call) and expr.span is None
    if not restamp and all(a.same_as(b) for a, b in zip(old, new, strict=True)):
        return expr
    if isinstance(expr, relay.Call):
        span = span if restamp else expr.span
        op = new.pop(0) if _calls_value(expr) else expr.op
        return relay.Call(op, new, expr.attrs, expr.type_args, span)
    if isinstance(expr, relay.Tuple):
        return relay.Tuple(new)
    return relay.TupleGetItem(new[0], expr.index)


def substitute(
    roots: list[Expr], replacements: dict[Expr, Expr], span: relay.Span | None = None
) -> list[Expr]:
    """``roots`` with expressions replaced; calls without a source get ``span``."""
    table = dict(replacements)
    for expr in post_order(roots, known=table):
        table[expr] = rebuild(expr, table.__getitem__, span)
    return [table[root] for root in roots]


def stamp(roots: list[Expr], known: Iterable[Expr], source: str) -> list[Expr]:
    """Write ``source`` (an ONNX node) as the span of every call of ``roots`` above ``known``."""
    span = relay.Span(relay.SourceName(source), 0, 0, 0, 0)
    return substitute(roots, {expr: expr for expr in known}, span)


def source_of(expr: Expr) -> str | None:
    """The source written by :func:`stamp`, or None."""
    return expr.span.source_name.name if getattr(expr, "span", None) is not None else None


def calls_op(expr: Expr, *names: str) -> bool:
    """Whether ``expr`` is a call of a Relay op of one of these names."""
    return isinstance(expr, relay.Call) and isinstance(expr.op, Op) and expr.op.name in names


class DynamicShapeError(Exception):
    """A size is asked for that is known at run time only."""


def tensor_type(expr: Expr) -> tuple[tuple[int, ...], str]:
    """Shape and dtype of a type-inferred tensor expression."""
    checked = expr.checked_type
    if is_dynamic(expr):
        raise DynamicShapeError(f"the size of a {checked.dtype} tensor is known at run time only")
    return tuple(int(d) for d in checked.shape), checked.dtype


def is_dynamic(expr: Expr) -> bool:
    """Whether some size of a tensor expression is known at run time only."""
    return any(isinstance(d, tir.Any) for d in expr.checked_type.shape)


def shape_of(expr: Expr) -> tuple[int, ...]:
    """Static shape of a type-inferred tensor expression."""
    return tensor_type(expr)[0]


def dtype_of(expr: Expr) -> str:
    """Dtype of a type-inferred tensor expression."""
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
