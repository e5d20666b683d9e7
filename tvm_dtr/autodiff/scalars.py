"""Small expressions that rules share: typed constants, broadcasting and its transpose."""

from __future__ import annotations

import math

import numpy as np
from tvm import relay

from ..relay_graph import Expr, dtype_of


def scalar(value: float, dtype: str) -> relay.Constant:
    """A zero-dimensional constant."""
    return relay.const(value, dtype)


def zeros(shape: tuple[int, ...], dtype: str) -> Expr:
    """A tensor of zeros that is made by a kernel rather than stored with the program."""
    return relay.broadcast_to(scalar(0, dtype), shape)


def cast_to(expr: Expr, dtype: str) -> Expr:
    """A typed tensor in another type. From float64 to float16 by way of float32: the compiler's
    own conversion gives other numbers."""
    if dtype_of(expr) == "float64" and dtype == "float16":
        expr = relay.cast(expr, "float32")
    return relay.cast(expr, dtype)


def select(condition: Expr, value: Expr, dtype: str) -> Expr:
    """``value`` where the condition holds, else zero."""
    return relay.where(condition, value, scalar(0, dtype))


def product_of_others(factor: Expr, zero_count: Expr, product: Expr, dtype: str) -> Expr:
    """Of factors with ``zero_count`` zeros and the ``product`` of the rest: all but ``factor``."""
    zero, one = scalar(0, dtype), scalar(1, dtype)
    is_zero = relay.equal(factor, zero)
    others = relay.where(is_zero, product, product / factor)
    own = relay.where(is_zero, one, zero)
    return select(relay.equal(zero_count, own), others, dtype)


def sum_to_shape(expr: Expr, shape: tuple[int, ...], target: tuple[int, ...]) -> Expr:
    """Transpose of broadcasting ``target`` to ``shape``: sums over what was repeated."""
    if shape == target:
        return expr
    lead = len(shape) - len(target)
    axes = [i for i in range(len(shape)) if i < lead or (target[i - lead] == 1 and shape[i] != 1)]
    if math.prod(shape[i] for i in axes) > 1:
        expr = relay.sum(expr, axis=axes, keepdims=False)
        kept = tuple(n for i, n in enumerate(shape) if i not in axes)
    else:
        kept = shape
    return expr if kept == target else relay.reshape(expr, target)


def broadcast_shape(a: tuple[int, ...], b: tuple[int, ...]) -> tuple[int, ...]:
    """Shape of an elementwise op on operands of these shapes (NumPy's rule)."""
    return tuple(int(n) for n in np.broadcast_shapes(a, b))
