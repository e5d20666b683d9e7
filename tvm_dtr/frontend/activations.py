"""Converters of activation functions that Relay has no op for.

Each is one composite of elementwise ops: its gradient is computed from the operand alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from tvm import relay

from ..autodiff.composite import composite
from ..autodiff.scalars import scalar
from ..relay_graph import Expr, dtype_of, shape_of
from .node import Node
from .registry import CONVERTERS, converter


def softplus(x: Expr, dtype: str) -> Expr:
    """log(1 + exp(x)) without overflow."""
    rest = relay.log(scalar(1, dtype) + relay.exp(relay.negative(relay.abs(x))))
    return relay.nn.relu(x) + rest


def elu(x: Expr, dtype: str, alpha: float, scale: float = 1.0) -> Expr:
    one = scalar(1, dtype)
    low = relay.exp(relay.minimum(x, scalar(0, dtype))) - one
    y = relay.where(relay.greater(x, scalar(0, dtype)), x, scalar(alpha, dtype) * low)
    return y if scale == 1.0 else scalar(scale, dtype) * y


def _gelu(x: Expr, dtype: str, approximate: str) -> Expr:
    half, one = scalar(0.5, dtype), scalar(1, dtype)
    if approximate == "tanh":
        inner = x + scalar(0.044715, dtype) * x * x * x
        return half * x * (one + relay.tanh(scalar(math.sqrt(2 / math.pi), dtype) * inner))
    return half * x * (one + relay.erf(x * scalar(math.sqrt(0.5), dtype)))


def hard_sigmoid(x: Expr, dtype: str, alpha: float, beta: float) -> Expr:
    return relay.clip(scalar(alpha, dtype) * x + scalar(beta, dtype), 0, 1)


def _celu(x: Expr, dtype: str, alpha: float) -> Expr:
    zero = scalar(0, dtype)
    low = relay.exp(relay.minimum(x, zero) / scalar(alpha, dtype)) - scalar(1, dtype)
    return relay.maximum(x, zero) + scalar(alpha, dtype) * low


def _shrink(x: Expr, dtype: str, lambd: float, bias: float) -> Expr:
    limit, shift, zero = scalar(lambd, dtype), scalar(bias, dtype), scalar(0, dtype)
    low = relay.where(relay.less(x, relay.negative(limit)), x + shift, zero)
    return relay.where(relay.greater(x, limit), x - shift, low)


Formula = Callable[[Node, Expr, str], Expr]

_FORMULAS: dict[str, Formula] = {
    "Celu": lambda n, x, t: _celu(x, t, n.attr("alpha", 1.0)),
    "Elu": lambda n, x, t: elu(x, t, n.attr("alpha", 1.0)),
    "Gelu": lambda n, x, t: _gelu(x, t, n.attr("approximate", "none")),
    "HardSigmoid": lambda n, x, t: hard_sigmoid(x, t, n.attr("alpha", 0.2), n.attr("beta", 0.5)),
    "HardSwish": lambda n, x, t: x * hard_sigmoid(x, t, 1 / 6, 0.5),
    "Mish": lambda n, x, t: x * relay.tanh(softplus(x, t)),
    "Selu": lambda n, x, t: elu(
        x, t, n.attr("alpha", 1.67326319217681884765625), n.attr("gamma", 1.05070102214813232421875)
    ),
    "Shrink": lambda n, x, t: _shrink(x, t, n.attr("lambd", 0.5), n.attr("bias", 0.0)),
    "Softplus": lambda n, x, t: softplus(x, t),
    "Softsign": lambda n, x, t: x / (scalar(1, t) + relay.abs(x)),
    "ThresholdedRelu": lambda n, x, t: relay.where(
        relay.greater(x, scalar(n.attr("alpha", 1.0), t)), x, scalar(0, t)
    ),
}


def _convert(name: str, formula: Formula) -> Callable[[Node], Expr]:
    def convert(node: Node) -> Expr:
        x = node.tensor(0)
        dtype = dtype_of(x)
        return composite(name.lower(), [x], lambda x: formula(node, x, dtype))

    return convert


CONVERTERS.update({name: _convert(name, formula) for name, formula in _FORMULAS.items()})


@converter("PRelu")
def prelu(node: Node) -> Expr:
    x, slope = node.tensor(0), node.weight(1)
    zero = scalar(0, dtype_of(x))
    if shape_of(slope) == ():
        slope = node.typed(relay.reshape(slope, (1,)))

    def body(x: Expr, slope: Expr) -> Expr:
        return relay.where(relay.greater(x, zero), x, slope * x)

    return composite("prelu", [x, slope], body)
