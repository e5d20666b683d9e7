"""Converters of elementwise ops and reductions."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
from tvm import relay

from ..autodiff.normalization import log_softmax
from ..autodiff.scalars import cast_to
from ..relay_graph import Expr, dtype_of, shape_of
from .node import Node
from .precision import unknown_type
from .registry import CONVERTERS, converter

_UNARY: dict[str, Callable[[Expr], Expr]] = {
    "Abs": relay.abs,
    "Acos": relay.acos,
    "Acosh": relay.acosh,
    "Asin": relay.asin,
    "Asinh": relay.asinh,
    "Atan": relay.atan,
    "Atanh": relay.atanh,
    "Ceil": relay.ceil,
    "Cos": relay.cos,
    "Cosh": relay.cosh,
    "Erf": relay.erf,
    "Exp": relay.exp,
    "Floor": relay.floor,
    "IsNaN": relay.isnan,
    "Log": relay.log,
    "Neg": relay.negative,
    "Not": relay.logical_not,
    "Relu": relay.nn.relu,
    "Sigmoid": relay.sigmoid,
    "Sign": relay.sign,
    "Sin": relay.sin,
    "Sinh": relay.sinh,
    "Sqrt": relay.sqrt,
    "Tan": relay.tan,
    "Tanh": relay.tanh,
}
_BINARY: dict[str, Callable[[Expr, Expr], Expr]] = {
    "Add": relay.add,
    "And": relay.logical_and,
    "Div": relay.divide,
    "Equal": relay.equal,
    "Greater": relay.greater,
    "GreaterOrEqual": relay.greater_equal,
    "Less": relay.less,
    "LessOrEqual": relay.less_equal,
    "Mul": relay.multiply,
    "Or": relay.logical_or,
    "Sub": relay.subtract,
    "Xor": relay.logical_xor,
}


def _convert_unary(op: Callable[[Expr], Expr]) -> Callable[[Node], Expr]:
    return lambda node: op(node.tensor(0))


def _convert_binary(op: Callable[[Expr, Expr], Expr]) -> Callable[[Node], Expr]:
    return lambda node: op(node.tensor(0), node.tensor(1))


CONVERTERS.update({name: _convert_unary(op) for name, op in _UNARY.items()})
CONVERTERS.update({name: _convert_binary(op) for name, op in _BINARY.items()})


@converter("Pow")
def power(node: Node) -> Expr:
    """Of the base's type; whole numbers are raised as floating-point ones."""
    base, exponent = node.tensor(0), node.tensor(1)
    kind, other = dtype_of(base), dtype_of(exponent)
    if kind.startswith("float"):
        return relay.power(base, exponent if other == kind else relay.cast(exponent, kind))
    result = relay.power(relay.cast(base, "float64"), relay.cast(exponent, "float64"))
    return relay.cast(result, kind)


@converter("Clip")
def clip(node: Node) -> Expr:
    """Where the bounds cross, the upper one holds."""
    if any(node.has(i) and node.known(i) is None for i in (1, 2)):
        return _clip_by_tensors(node)
    low = float(np.ravel(node.constant(1, node.attr("min", -np.inf)))[0])
    high = float(np.ravel(node.constant(2, node.attr("max", np.inf)))[0])
    limit = float(np.finfo("float32").max)
    low, high = max(low, -limit), min(high, limit)
    return relay.clip(node.tensor(0), min(low, high), high)


def _clip_by_tensors(node: Node) -> Expr:
    x = node.tensor(0)
    if node.has(1):
        x = relay.maximum(x, node.tensor(1))
    return relay.minimum(x, node.tensor(2)) if node.has(2) else x


@converter("LeakyRelu")
def leaky_relu(node: Node) -> Expr:
    return relay.nn.leaky_relu(node.tensor(0), alpha=node.attr("alpha", 0.01))


@converter("Reciprocal")
def reciprocal(node: Node) -> Expr:
    x = node.tensor(0)
    return relay.const(1, dtype_of(x)) / x


_VARIADIC: dict[str, Callable[[Expr, Expr], Expr]] = {
    "Max": relay.maximum,
    "Mean": relay.add,
    "Min": relay.minimum,
    "Sum": relay.add,
}


def _convert_variadic(op: Callable[[Expr, Expr], Expr]) -> Callable[[Node], Expr]:
    def convert(node: Node) -> Expr:
        y = node.tensor(0)
        for i in range(1, node.operand_count):
            y = op(y, node.tensor(i))
        if node.op == "Mean":
            y = y * relay.const(1 / node.operand_count, dtype_of(node.tensor(0)))
        return y

    return convert


CONVERTERS.update({name: _convert_variadic(op) for name, op in _VARIADIC.items()})


@converter("Mod")
def mod(node: Node) -> Expr:
    """The remainder has the divisor's sign, or with fmod the dividend's."""
    a, b = node.tensor(0), node.tensor(1)
    rest = relay.mod(a, b)
    if node.attr("fmod", 0) or dtype_of(a).startswith("uint"):
        return rest
    zero = relay.const(0, dtype_of(a))
    wrong = relay.logical_and(
        relay.not_equal(rest, zero), relay.not_equal(relay.less(rest, zero), relay.less(b, zero))
    )
    return relay.where(wrong, rest + b, rest)


@converter("Where")
def where(node: Node) -> Expr:
    return relay.where(node.tensor(0), node.tensor(1), node.tensor(2))


@converter("Cast", "CastLike")
def cast(node: Node) -> Expr:
    if node.op == "CastLike":
        return cast_to(node.tensor(0), node.dtype(1))
    wrong = unknown_type(node.attr("to"))
    if wrong:
        raise node.error(wrong)
    return cast_to(node.tensor(0), str(onnx.helper.tensor_dtype_to_np_dtype(node.attr("to"))))


def _softmax_axis(node: Node) -> tuple[Expr, int, tuple[int, ...]]:
    """The operand, the axis, and the shape to restore: before operator set 13, the axes from
    ``axis`` on are normalized together."""
    x = node.tensor(0)
    shape = shape_of(x)
    if node.opset >= 13:
        return x, node.attr("axis", -1) % len(shape), shape
    axis = node.attr("axis", 1) % len(shape)
    if axis == len(shape) - 1:
        return x, axis, shape
    return relay.reshape(x, (int(np.prod(shape[:axis])), -1)), 1, shape


@converter("Softmax")
def softmax(node: Node) -> Expr:
    x, axis, shape = _softmax_axis(node)
    y = relay.nn.softmax(x, axis)
    return y if shape_of(node.typed(x)) == shape else relay.reshape(y, shape)


@converter("LogSoftmax")
def log_soft_max(node: Node) -> Expr:
    x, axis, shape = _softmax_axis(node)
    y = log_softmax(node.typed(x), axis)
    return y if shape_of(x) == shape else relay.reshape(y, shape)
