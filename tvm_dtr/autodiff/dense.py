"""Gradients of matrix products.

Every product is written as ``nn.dense`` or ``nn.batch_matmul`` with the second operand transposed:
the form that has a fast kernel on CPUs.
"""

from __future__ import annotations

from tvm import relay

from ..relay_graph import Expr, shape_of
from .rules import Adjoint, gradient
from .scalars import sum_to_shape


@gradient("nn.dense")
def _dense(adjoint: Adjoint) -> list[Expr | None]:
    """y[i,o] = sum_k x[i,k] w[o,k]"""
    (x, w), dy = adjoint.call.args, adjoint.output
    dx = relay.nn.dense(dy, _transposed(w, [1, 0])) if adjoint.needs[0] else None
    dw = relay.nn.dense(relay.transpose(dy), relay.transpose(x)) if adjoint.needs[1] else None
    return [dx, dw]


def _swap(expr: Expr) -> Expr:
    return _transposed(expr, [0, 2, 1])


def _transposed(expr: Expr, axes: list[int]) -> Expr:
    """The transpose, which is its own inverse: of a transpose its operand, so that a weight and not
    its copy is what the backward pass needs."""
    is_transpose = isinstance(expr, relay.Call) and getattr(expr.op, "name", "") == "transpose"
    if is_transpose and _axes(expr) == axes:
        return expr.args[0]
    return relay.transpose(expr, axes)


def _axes(call: relay.Call) -> list[int]:
    rank = len(shape_of(call))
    given = call.attrs.axes
    return [int(a) % rank for a in given] if given else list(range(rank))[::-1]


def _product(a: Expr, b: Expr) -> Expr:
    """c[n,i,j] = sum_k a[n,i,k] b[n,j,k]"""
    return relay.nn.batch_matmul(a, b, transpose_a=False, transpose_b=True)


@gradient("nn.batch_matmul")
def _batch_matmul(adjoint: Adjoint) -> list[Expr | None]:
    call, dy = adjoint.call, adjoint.output
    a, b = call.args
    ta, tb = bool(call.attrs.transpose_a), bool(call.attrs.transpose_b)
    da = db = None
    batch = shape_of(call)[0]
    if adjoint.needs[0]:
        rows = b if not tb else _swap(b)  # (k, j)
        da = _product(rows, dy) if ta else _product(dy, rows)
        da = _per_batch(da, batch, shape_of(a))
    if adjoint.needs[1]:
        columns = a if ta else _swap(a)  # (k, i)
        db = _product(_swap(dy), columns) if tb else _product(columns, _swap(dy))
        db = _per_batch(db, batch, shape_of(b))
    return [da, db]


def _per_batch(grad: Expr, batch: int, shape: tuple[int, ...]) -> Expr:
    return sum_to_shape(grad, (batch, *shape[1:]), shape)
