"""Gradients of elementwise ops. Those that can be written with the output keep only that alive."""

from __future__ import annotations

import math
from collections.abc import Callable

from tvm import relay

from ..relay_graph import Expr, dtype_of, shape_of
from .rules import CONSTANT_OPS, Adjoint, gradient
from .scalars import scalar, select, sum_to_shape

CONSTANT_OPS.update(
    [
        "equal",
        "not_equal",
        "less",
        "less_equal",
        "greater",
        "greater_equal",
        "logical_and",
        "logical_or",
        "logical_xor",
        "logical_not",
        "floor",
        "ceil",
        "round",
        "trunc",
        "sign",
        "isnan",
        "isinf",
        "isfinite",
        "argmax",
        "argmin",
        "floor_divide",
        "bitwise_and",
        "bitwise_or",
        "bitwise_not",
        "bitwise_xor",
        "zeros_like",
        "ones_like",
        "zeros",
        "ones",
        "full",
        "full_like",
        "arange",
        "one_hot",
        "shape_of",
        "argsort",
        "dtr.dropout_mask",
        "random.threefry_generate",
        "random.threefry_split",
    ]
)

# name -> formula(x, y, dy, dtype), where y is the op's output
_UNARY: dict[str, Callable[[Expr, Expr, Expr, str], Expr]] = {
    "negative": lambda x, y, dy, t: relay.negative(dy),
    "exp": lambda x, y, dy, t: dy * y,
    "log": lambda x, y, dy, t: dy / x,
    "sqrt": lambda x, y, dy, t: dy * scalar(0.5, t) / y,
    "rsqrt": lambda x, y, dy, t: dy * scalar(-0.5, t) * (y * y * y),
    "sigmoid": lambda x, y, dy, t: dy * (y * (scalar(1, t) - y)),
    "tanh": lambda x, y, dy, t: dy * (scalar(1, t) - y * y),
    "abs": lambda x, y, dy, t: dy * relay.sign(x),
    "sin": lambda x, y, dy, t: dy * relay.cos(x),
    "cos": lambda x, y, dy, t: relay.negative(dy * relay.sin(x)),
    "tan": lambda x, y, dy, t: dy * (scalar(1, t) + y * y),
    "asin": lambda x, y, dy, t: dy * relay.rsqrt(scalar(1, t) - x * x),
    "acos": lambda x, y, dy, t: relay.negative(dy * relay.rsqrt(scalar(1, t) - x * x)),
    "asinh": lambda x, y, dy, t: dy * relay.rsqrt(x * x + scalar(1, t)),
    "acosh": lambda x, y, dy, t: dy * relay.rsqrt(x * x - scalar(1, t)),
    "atanh": lambda x, y, dy, t: dy / (scalar(1, t) - x * x),
    "atan": lambda x, y, dy, t: dy / (scalar(1, t) + x * x),
    "sinh": lambda x, y, dy, t: dy * relay.cosh(x),
    "cosh": lambda x, y, dy, t: dy * relay.sinh(x),
    "erf": lambda x, y, dy, t: (
        dy * scalar(2 / math.sqrt(math.pi), t) * relay.exp(relay.negative(x * x))
    ),
    "nn.relu": lambda x, y, dy, t: select(relay.greater(y, scalar(0, t)), dy, t),
    "copy": lambda x, y, dy, t: dy,
}


@gradient(*_UNARY)
def _unary(adjoint: Adjoint) -> list[Expr | None]:
    call = adjoint.call
    return [_UNARY[call.op.name](call.args[0], call, adjoint.output, dtype_of(call))]


@gradient("clip")
def _clip(adjoint: Adjoint) -> list[Expr | None]:
    # By the output: zero at exactly a bound, as for PyTorch's relu6 and hardtanh.
    call, dy, dtype = adjoint.call, adjoint.output, dtype_of(adjoint.call)
    low, high = call.attrs.a_min, call.attrs.a_max
    if low > -3.4e38:
        dy = select(relay.greater(call, scalar(low, dtype)), dy, dtype)
    if high < 3.4e38:
        dy = select(relay.less(call, scalar(high, dtype)), dy, dtype)
    return [dy]


@gradient("nn.leaky_relu")
def _leaky_relu(adjoint: Adjoint) -> list[Expr | None]:
    call, dy, dtype = adjoint.call, adjoint.output, dtype_of(adjoint.call)
    alpha = float(call.attrs.alpha)
    side = call if alpha >= 0 else call.args[0]
    slope = dy * scalar(alpha, dtype)
    return [relay.where(relay.greater(side, scalar(0, dtype)), dy, slope)]


@gradient("cast")
def _cast(adjoint: Adjoint) -> list[Expr | None]:
    before, dtype = dtype_of(adjoint.call), dtype_of(adjoint.call.args[0])
    dy = adjoint.output
    if (before, dtype) == ("float64", "float16"):
        dy = relay.cast(dy, "float32")  # as in cast_to
    return [relay.cast(dy, dtype)]


def _reduced(adjoint: Adjoint, parts: list[Callable[[], Expr]]) -> list[Expr | None]:
    """Each operand's part, summed to the operand's shape, where it is needed."""
    shape = shape_of(adjoint.call)
    return [
        sum_to_shape(part(), shape, shape_of(arg)) if need else None
        for arg, part, need in zip(adjoint.call.args, parts, adjoint.needs, strict=True)
    ]


@gradient("add")
def _add(adjoint: Adjoint) -> list[Expr | None]:
    dy = adjoint.output
    return _reduced(adjoint, [lambda: dy, lambda: dy])


@gradient("subtract")
def _subtract(adjoint: Adjoint) -> list[Expr | None]:
    dy = adjoint.output
    return _reduced(adjoint, [lambda: dy, lambda: relay.negative(dy)])


@gradient("multiply")
def _multiply(adjoint: Adjoint) -> list[Expr | None]:
    (a, b), dy = adjoint.call.args, adjoint.output
    return _reduced(adjoint, [lambda: dy * b, lambda: dy * a])


@gradient("divide")
def _divide(adjoint: Adjoint) -> list[Expr | None]:
    (_, b), y, dy = adjoint.call.args, adjoint.call, adjoint.output
    return _reduced(adjoint, [lambda: dy / b, lambda: relay.negative(dy * y / b)])


@gradient("power")
def _power(adjoint: Adjoint) -> list[Expr | None]:
    (a, b), y, dy = adjoint.call.args, adjoint.call, adjoint.output
    dtype = dtype_of(y)
    one = scalar(1, dtype)
    # d/db at a = 0 is 0 (the limit for b > 0) and not 0 * log 0.
    log_a = relay.where(relay.greater(a, scalar(0, dtype)), relay.log(a), scalar(0, dtype))
    return _reduced(adjoint, [lambda: dy * b * relay.power(a, b - one), lambda: dy * y * log_a])


@gradient("maximum", "minimum")
def _extremum(adjoint: Adjoint) -> list[Expr | None]:
    # A tie shares the gradient equally, as PyTorch's maximum and minimum do.
    (a, b), dy = adjoint.call.args, adjoint.output
    dtype = dtype_of(adjoint.call)
    wins = relay.greater if adjoint.call.op.name == "maximum" else relay.less

    def share(x: Expr, other: Expr) -> Expr:
        half = select(relay.equal(x, other), dy * scalar(0.5, dtype), dtype)
        return relay.where(wins(x, other), dy, half)

    return _reduced(adjoint, [lambda: share(a, b), lambda: share(b, a)])


@gradient("mod")
def _remainder(adjoint: Adjoint) -> list[Expr | None]:
    """a - b q with a whole number q, the quotient rounded towards zero."""
    (a, b), dy = adjoint.call.args, adjoint.output
    return _reduced(adjoint, [lambda: dy, lambda: relay.negative(dy * relay.trunc(a / b))])


@gradient("where")
def _where(adjoint: Adjoint) -> list[Expr | None]:
    condition, dy = adjoint.call.args[0], adjoint.output
    dtype = dtype_of(adjoint.call)
    zero = scalar(0, dtype)
    return _reduced(
        adjoint,
        [
            lambda: zero,
            lambda: relay.where(condition, dy, zero),
            lambda: relay.where(condition, zero, dy),
        ],
    )
