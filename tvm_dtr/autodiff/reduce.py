"""Gradients of reductions."""

from __future__ import annotations

import math

from tvm import relay

from ..relay_graph import Expr, dtype_of, shape_of
from .rules import Adjoint, gradient
from .scalars import scalar, select


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
