"""Gradients of pooling."""

from __future__ import annotations

from tvm import relay

from ..errors import ModelError
from ..relay_graph import Expr, source_of
from .rules import Adjoint, gradient


def _window(call: relay.Call) -> dict[str, object]:
    attrs = call.attrs
    if any(int(d) != 1 for d in attrs.dilation):
        where = source_of(call) or call.op.name
        raise ModelError(f"{where}: no gradient for pooling with dilation")
    return {
        "pool_size": tuple(int(n) for n in attrs.pool_size),
        "strides": tuple(int(n) for n in attrs.strides),
        "padding": tuple(int(n) for n in attrs.padding),
        "ceil_mode": bool(attrs.ceil_mode),
    }


@gradient("nn.max_pool2d")
def _max_pool2d(adjoint: Adjoint) -> list[Expr | None]:
    # To the first maximum of each window in row order, as PyTorch does.
    call = adjoint.call
    return [relay.nn.max_pool2d_grad(adjoint.output, call.args[0], **_window(call))]


@gradient("nn.avg_pool2d")
def _avg_pool2d(adjoint: Adjoint) -> list[Expr | None]:
    call = adjoint.call
    window = _window(call)
    return [
        relay.nn.avg_pool2d_grad(
            adjoint.output,
            call.args[0],
            count_include_pad=bool(call.attrs.count_include_pad),
            **window,
        )
    ]
