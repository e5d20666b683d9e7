"""Expressions that the functions of branches, loops and trees are written with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import relay

from ..relay_graph import Expr


def row_of(tensor: Expr, index: Expr) -> Expr:
    """Row ``index`` of a tensor."""
    return relay.take(tensor, index, axis=0, mode="clip")


def filled(value: float, kind: Any) -> Expr:
    """A tensor of type ``kind`` and one value, made by a kernel and not stored with the program."""
    return relay.full(relay.const(value, kind.dtype), [int(n) for n in kind.shape], kind.dtype)


def in_order(values: list[Expr], body: Callable[[list[Expr]], Expr]) -> Expr:
    """``body`` of names for ``values``, which are computed first and in this order."""
    names = [v if isinstance(v, relay.Var) else relay.Var(f"v{i}") for i, v in enumerate(values)]
    whole = body(names)
    for name, value in reversed(list(zip(names, values, strict=True))):
        if not isinstance(value, relay.Var):
            whole = relay.Let(name, value, whole)
    return whole
