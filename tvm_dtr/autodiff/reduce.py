"""Gradients of reductions."""

from __future__ import annotations

import math

from tvm import relay

from ..relay_graph import Expr, dtype_of, shape_of
from .composite import composite
from .rules import Adjoint, gradient
from .scalars import product_of_others, scalar, select


def _axes(call: relay.Call) -> list[int]:
    rank = len(shape_of(call.args[0]))
    if call.attrs.axis is None:
        axes = list(range(rank))
    else:
        axes = [int(a) % rank for a in call.attrs.axis]
    if call.attrs.exclude:
        axes = [a for a in range(rank) if a not in axes]
    return axes


def _keep(call: relay.Call, expr: Expr) -> Expr:
    """A tensor of the reduction's shape, with the reduced axes back as ones (a view)."""
    shape = shape_of(call.args[0])
    axes = _axes(call)
    kept = tuple(1 if i in axes else n for i, n in enumerate(shape))
    return expr if shape_of(call) == kept else relay.reshape(expr, kept)


@gradient("sum")
def _sum(adjoint: Adjoint) -> list[Expr | None]:
    call = adjoint.call
    return [relay.broadcast_to(_keep(call, adjoint.output), shape_of(call.args[0]))]


@gradient("mean")
def _mean(adjoint: Adjoint) -> list[Expr | None]:
    call = adjoint.call
    shape = shape_of(call.args[0])
    count = math.prod(shape[a] for a in _axes(call))
    dy = adjoint.output * scalar(1 / count, dtype_of(call))
    return [relay.broadcast_to(_keep(call, dy), shape)]


@gradient("max", "min")
def _extremum(adjoint: Adjoint) -> list[Expr | None]:
    # Ties share the gradient equally, as PyTorch's amax and amin do.
    call, x = adjoint.call, adjoint.call.args[0]
    dtype = dtype_of(x)
    hit = relay.equal(x, _keep(call, call))
    ties = relay.sum(relay.cast(hit, dtype), axis=_axes(call), keepdims=True)
    share = _keep(call, adjoint.output) / ties
    return [select(hit, relay.broadcast_to(share, shape_of(x)), dtype)]


@gradient("prod")
def _prod(adjoint: Adjoint) -> list[Expr | None]:
    call, x = adjoint.call, adjoint.call.args[0]
    dtype, axes = dtype_of(x), _axes(call)
    is_zero = relay.equal(x, scalar(0, dtype))
    zero_count = relay.sum(relay.cast(is_zero, dtype), axis=axes, keepdims=True)
    product = relay.prod(relay.where(is_zero, scalar(1, dtype), x), axis=axes, keepdims=True)
    return [_keep(call, adjoint.output) * product_of_others(x, zero_count, product, dtype)]


def _kept(x: Expr, axes: list[int]) -> tuple[int, ...]:
    return tuple(1 if i in axes else n for i, n in enumerate(shape_of(x)))


def reduce_log_sum_exp(x: Expr, axes: list[int], keepdims: bool) -> relay.Call:
    """log(sum(exp(x))) over non-negative ``axes``, shifted by the maximum against overflow."""

    def body(x: Expr) -> Expr:
        top = relay.max(x, axis=axes, keepdims=True)
        y = relay.log(relay.sum(relay.exp(x - top), axis=axes, keepdims=True)) + top
        return y if keepdims else relay.squeeze(y, axes)

    return composite("reduce_log_sum_exp", [x], body, axes=axes)


@gradient("reduce_log_sum_exp")
def _reduce_log_sum_exp(adjoint: Adjoint) -> list[Expr | None]:
    (x,), axes = adjoint.call.args, [int(a) for a in adjoint.call.op.attrs["axes"]]
    y, dy = (relay.reshape(e, _kept(x, axes)) for e in (adjoint.call, adjoint.output))
    return [dy * relay.exp(x - y)]


def euclidean_norm(x: Expr, axes: list[int], keepdims: bool) -> relay.Call:
    """Square root of the sum of squares over non-negative ``axes``; at zero its gradient is zero,
    as PyTorch's, and not 0 / 0."""

    def body(x: Expr) -> Expr:
        return relay.sqrt(relay.sum(x * x, axis=axes, keepdims=keepdims))

    return composite("euclidean_norm", [x], body, axes=axes)


@gradient("euclidean_norm")
def _euclidean_norm(adjoint: Adjoint) -> list[Expr | None]:
    (x,), axes = adjoint.call.args, [int(a) for a in adjoint.call.op.attrs["axes"]]
    y, dy = (relay.reshape(e, _kept(x, axes)) for e in (adjoint.call, adjoint.output))
    dtype = dtype_of(x)
    return [select(relay.greater(y, scalar(0, dtype)), dy * x / y, dtype)]
