"""Loop-invariant code: computed once before a loop instead of in each of its iterations."""

from __future__ import annotations

from collections.abc import Sequence

from tvm import relay
from tvm.ir import Op

from ..relay_graph import Expr, children, infer_function, post_order
from .definitions import Type


def invariants(
    roots: Sequence[Expr], captured: Sequence[relay.Var]
) -> tuple[list[Expr], list[Type]]:
    """The largest calls of ops below ``roots`` that depend on captured values alone, and their
    types. Transposed weights are the common case. Constants stay where they are: kernels make
    them, and they need no memory in between."""
    depends = set(captured)
    found: dict[Expr, None] = {}
    order = post_order(roots)
    for expr in order:
        below = children(expr)
        varies = [c for c in below if c not in depends and not isinstance(c, relay.Constant)]
        if _moves(expr) and not varies and any(c in depends for c in below):
            depends.add(expr)
    for expr in [*order, relay.Tuple(list(roots))]:
        if expr not in depends:
            found.update({c: None for c in children(expr) if c in depends and c not in captured})
    hoisted = list(found)
    if not hoisted:
        return [], []
    typed = infer_function(relay.Function(list(captured), relay.Tuple(hoisted)))
    return hoisted, [field.checked_type for field in typed.body.fields]


def _moves(expr: Expr) -> bool:
    """Calls of ops with one result: of several, those who use them take one."""
    return isinstance(expr, relay.Call) and isinstance(expr.op, Op)
