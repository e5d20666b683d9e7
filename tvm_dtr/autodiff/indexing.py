"""Gradients of taking and writing at indices, and of running sums."""

from __future__ import annotations

from tvm import relay

from ..relay_graph import Expr, dtype_of, shape_of
from ..relay_ops import cumulative_sum, scatter_rows, take_gradient
from .rules import CONSTANT_OPS, Adjoint, gradient
from .scalars import product_of_others, scalar, zeros

CONSTANT_OPS.add("dtr.top_k")


@gradient("take")
def _take(adjoint: Adjoint) -> list[Expr | None]:
    call = adjoint.call
    x, indices = call.args
    axis = int(call.attrs.axis) % len(shape_of(x))
    return [take_gradient(adjoint.output, indices, shape_of(x), axis), None]


@gradient("dtr.cumulative_sum")
def _cumulative_sum(adjoint: Adjoint) -> list[Expr | None]:
    attrs = adjoint.call.attrs
    backwards, exclusive = not int(attrs["backwards"]), bool(int(attrs["exclusive"]))
    return [cumulative_sum(adjoint.output, int(attrs["axis"]), exclusive, backwards)]


def _taken(rows: Expr, index: Expr) -> Expr:
    return relay.take(rows, index, axis=0, mode="fast")


@gradient("dtr.scatter_rows")
def _scatter_rows(adjoint: Adjoint) -> list[Expr | None]:
    reduction = str(adjoint.call.attrs["reduction"])
    if reduction == "none":
        return _replaced(adjoint)
    if reduction == "add":
        dy, index = adjoint.output, adjoint.call.args[1]
        return [dy, None, _taken(dy, index) if adjoint.needs[2] else None]
    return _multiplied(adjoint) if reduction == "mul" else _extremum(adjoint)


def _replaced(adjoint: Adjoint) -> list[Expr | None]:
    # Of updates to the same row only the last counts forward; ONNX leaves that undefined, and
    # here each gets the row's gradient, as in PyTorch.
    (_, index, updates), dy = adjoint.call.args, adjoint.output
    dtype = dtype_of(updates)
    kept = scatter_rows(dy, index, zeros(shape_of(updates), dtype)) if adjoint.needs[0] else None
    return [kept, None, _taken(dy, index) if adjoint.needs[2] else None]


def _extremum(adjoint: Adjoint) -> list[Expr | None]:
    """Ties share the gradient equally, as PyTorch's scatter_reduce does."""
    (data, index, updates), y, dy = adjoint.call.args, adjoint.call, adjoint.output
    dtype = dtype_of(y)
    kept = relay.cast(relay.equal(data, y), dtype)
    won = relay.cast(relay.equal(updates, _taken(y, index)), dtype)
    share = dy / scatter_rows(kept, index, won, "add")
    return [share * kept, None, _taken(share, index) * won]


def _multiplied(adjoint: Adjoint) -> list[Expr | None]:
    """A factor's gradient is the product of the others; a factor of zero cannot be divided out."""
    (data, index, updates), dy = adjoint.call.args, adjoint.output
    dtype = dtype_of(dy)
    zero, one = scalar(0, dtype), scalar(1, dtype)

    def is_zero(x: Expr) -> Expr:
        return relay.equal(x, zero)

    def without_zeros(x: Expr) -> Expr:
        return relay.where(is_zero(x), one, x)

    zero_count = scatter_rows(
        relay.cast(is_zero(data), dtype), index, relay.cast(is_zero(updates), dtype), "add"
    )
    product = scatter_rows(without_zeros(data), index, without_zeros(updates), "mul")
    du = product_of_others(updates, _taken(zero_count, index), _taken(product, index), dtype)
    dx = product_of_others(data, zero_count, product, dtype)
    return [dy * dx, None, _taken(dy, index) * du]
