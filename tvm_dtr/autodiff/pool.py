"""Gradients of pooling."""

from __future__ import annotations

from tvm import relay

from ..errors import ModelError
from ..relay_graph import Expr, source_of
from ..relay_ops import max_pool2d_gradient
from .rules import Adjoint, gradient


def _ints(values: object) -> tuple[int, ...]:
    return tuple(int(v) for v in values)  # type: ignore[attr-defined]


@gradient("nn.max_pool2d")
def _max_pool2d(adjoint: Adjoint) -> list[Expr | None]:
    call, attrs = adjoint.call, adjoint.call.attrs
    return [
        max_pool2d_gradient(
            adjoint.output,
            call.args[0],
            kernel=_ints(attrs.pool_size),
            stride=_ints(attrs.strides),
            before=_ints(attrs.padding)[:2],
            dilation=_ints(attrs.dilation),
        )
    ]


@gradient("nn.avg_pool2d")
def _avg_pool2d(adjoint: Adjoint) -> list[Expr | None]:
    call, attrs = adjoint.call, adjoint.call.attrs
    if _ints(attrs.dilation) != (1, 1):
        where = source_of(call) or call.op.name
        raise ModelError(f"{where}: no gradient for average pooling with dilation")
    return [
        relay.nn.avg_pool2d_grad(
            adjoint.output,
            call.args[0],
            pool_size=_ints(attrs.pool_size),
            strides=_ints(attrs.strides),
            padding=_ints(attrs.padding),
            ceil_mode=bool(attrs.ceil_mode),
            count_include_pad=bool(attrs.count_include_pad),
        )
    ]
