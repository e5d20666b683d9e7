"""Walks over Relay expressions in graph form, without recursion: steps can be very deep."""

from __future__ import annotations

from typing import Any

from tvm import relay
from tvm.ir import TupleType

from tvm_dtr.errors import ModelError
from tvm_dtr.relay_facts import address, arguments, children, remembered


def operands(expr: Any) -> tuple[Any, ...]:
    """The expressions that `expr` reads. Raises ModelError on anything that is not dataflow."""
    if isinstance(expr, relay.Call):
        return arguments(expr)
    if isinstance(expr, relay.Tuple | relay.TupleGetItem):
        return children(expr)
    if isinstance(expr, relay.Var | relay.Constant):
        return ()
    raise ModelError(
        f"the training step contains a Relay {type(expr).__name__}, expected straight-line "
        "dataflow; control flow cannot be compiled this way"
    )


def post_order(body: Any) -> list[Any]:
    """Every expression under `body`, operands before users, in depth-first order."""
    order: list[Any] = []
    done: set[int] = set()
    stack: list[tuple[Any, list[Any] | None]] = [(body, None)]
    while stack:
        expr, pending = stack.pop()
        if pending is None:
            if (key := address(expr)) in done:
                continue
            done.add(key)
            pending = list(reversed(operands(expr)))
        while pending and address(pending[-1]) in done:
            pending.pop()
        if pending:
            stack.append((expr, pending))
            stack.append((pending.pop(), None))
        else:
            order.append(expr)
    return order


def tensor_types(expr_type: Any) -> list[tuple[tuple[int, ...], str]]:
    """(shape, dtype) of a tensor type, or of each field of a tuple type, flattened."""
    if isinstance(expr_type, TupleType):
        return [entry for field in expr_type.fields for entry in tensor_types(field)]
    try:
        shape = tuple(int(extent) for extent in expr_type.shape[:])
    except (TypeError, AttributeError) as error:
        raise ModelError(
            f"a tensor has type {expr_type}, expected a fixed shape; give --shape for it"
        ) from error
    return [(shape, str(expr_type.dtype))]


def types_of(expr: Any) -> list[tuple[tuple[int, ...], str]]:
    """tensor_types of a type-inferred expression or of a constant."""
    return remembered("types", expr, _types_of)


def _types_of(expr: Any) -> list[tuple[tuple[int, ...], str]]:
    if isinstance(expr, relay.Constant):
        return [(tuple(int(extent) for extent in expr.data.shape), str(expr.data.dtype))]
    return tensor_types(expr.checked_type)
