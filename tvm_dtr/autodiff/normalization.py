"""Normalizations and softmax: forward formulas as composites, with their gradients.

Each keeps for the backward pass its input and the per-channel or per-row statistics, never the
normalized tensor: x - mean is recomputed inside the fused backward kernels, which costs one
subtraction and saves a tensor of the input's size.
"""

from __future__ import annotations

import math

import numpy as np
from tvm import relay

from ..relay_graph import Expr, dtype_of, shape_of
from ..relay_ops import batch_norm_gradient_sums, batch_statistics
from .composite import composite
from .rules import RESULT_AGAIN, Adjoint, gradient
from .scalars import scalar, sum_to_shape


def _per_channel(expr: Expr, rank: int) -> Expr:
    """A (C,) tensor as (C, 1, ...), which broadcasts against (N, C, ...)."""
    return relay.expand_dims(expr, 1, rank - 2) if rank > 2 else expr


def batch_norm(x: Expr, gamma: Expr, beta: Expr, epsilon: float) -> relay.Call:
    """Batch normalization in training mode (Ioffe and Szegedy, ICML 2015).

    ``x`` is (N, C, ...), ``gamma`` and ``beta`` (C,). A tuple: y, the batch mean, the batch's
    biased variance and 1 / sqrt(variance + epsilon), the last three (C,).
    """
    shape, dtype = shape_of(x), dtype_of(x)
    rank = len(shape)

    def body(x: Expr, gamma: Expr, beta: Expr) -> Expr:
        statistics = batch_statistics(x)
        mean, variance = relay.TupleGetItem(statistics, 0), relay.TupleGetItem(statistics, 1)
        inverse = relay.rsqrt(variance + scalar(epsilon, dtype))
        y = _batch_normalized(x, gamma, beta, mean, inverse, rank)
        return relay.Tuple([y, mean, variance, inverse])

    return composite("batch_norm", [x, gamma, beta], body, epsilon=float(epsilon))


def _batch_normalized(
    x: Expr, gamma: Expr, beta: Expr, mean: Expr, inverse: Expr, rank: int
) -> Expr:
    off = x - _per_channel(mean, rank)
    return off * _per_channel(inverse * gamma, rank) + _per_channel(beta, rank)


def _batch_norm_again(call: relay.Call) -> Expr:
    x, gamma, beta = call.args
    mean, inverse = relay.TupleGetItem(call, 1), relay.TupleGetItem(call, 3)
    return _batch_normalized(x, gamma, beta, mean, inverse, len(shape_of(x)))


RESULT_AGAIN["batch_norm"] = _batch_norm_again


@gradient("batch_norm")
def _batch_norm(adjoint: Adjoint) -> list[Expr | None]:
    # With o = x - mean, s = 1/sqrt(var + eps), n elements per channel:
    #   dbeta = sum dy, dgamma = s sum dy o, dx = gamma s (dy - dbeta/n - o s dgamma/n)
    call, dy = adjoint.call, adjoint.outputs[0]
    x, gamma, _ = call.args
    shape = shape_of(x)
    dtype, rank = dtype_of(x), len(shape)
    if dy is None or any(d is not None for d in adjoint.outputs[1:]):
        raise AssertionError("batch statistics are differentiated through y only")
    mean, inverse = relay.TupleGetItem(call, 1), relay.TupleGetItem(call, 3)
    per_element = scalar(1 / (math.prod(shape) // shape[1]), dtype)

    sums = batch_norm_gradient_sums(dy, x, mean)
    dbeta = relay.TupleGetItem(sums, 0)
    dgamma = relay.TupleGetItem(sums, 1) * inverse
    dx = None
    if adjoint.needs[0]:
        shift = _per_channel(dbeta * per_element, rank)
        slope = _per_channel(inverse * dgamma * per_element, rank)
        dx = (dy - shift - (x - _per_channel(mean, rank)) * slope) * _per_channel(
            gamma * inverse, rank
        )
    return [dx, dgamma, dbeta]


def normalize(x: Expr, gamma: Expr, beta: Expr, axes: list[int], epsilon: float) -> relay.Call:
    """Normalization over ``axes`` within each example: layer, instance and group normalization.

    ``gamma`` and ``beta`` broadcast to the shape of ``x``. A tuple: y, the mean and
    1 / sqrt(variance + epsilon), both with the axes kept as ones.
    """
    dtype = dtype_of(x)

    def body(x: Expr, gamma: Expr, beta: Expr) -> Expr:
        mean = relay.mean(x, axis=axes, keepdims=True)
        off = x - mean
        variance = relay.mean(off * off, axis=axes, keepdims=True)
        inverse = relay.rsqrt(variance + scalar(epsilon, dtype))
        # A second subtraction of its own: shared, it would be a tensor in memory.
        return relay.Tuple([(x - mean) * inverse * gamma + beta, mean, inverse])

    return composite("normalize", [x, gamma, beta], body, axes=axes)


def _normalize_again(call: relay.Call) -> Expr:
    x, gamma, beta = call.args
    return (x - relay.TupleGetItem(call, 1)) * relay.TupleGetItem(call, 2) * gamma + beta


RESULT_AGAIN["normalize"] = _normalize_again


@gradient("normalize")
def _normalize(adjoint: Adjoint) -> list[Expr | None]:
    # With h = (x - mean) s and g = dy gamma: dx = s (g - mean(g) - h mean(g h))
    call, dy = adjoint.call, adjoint.outputs[0]
    x, gamma, beta = call.args
    axes = [int(a) for a in call.op.attrs["axes"]]
    mean, inverse = relay.TupleGetItem(call, 1), relay.TupleGetItem(call, 2)
    assert dy is not None

    def normal() -> Expr:
        return (x - mean) * inverse

    dx = dgamma = dbeta = None
    if adjoint.needs[0]:
        share = relay.mean(dy * gamma, axis=axes, keepdims=True)
        slope = relay.mean(dy * gamma * normal(), axis=axes, keepdims=True)
        dx = inverse * (dy * gamma - share - normal() * slope)
    if adjoint.needs[1]:
        dgamma = sum_to_shape(dy * normal(), shape_of(x), shape_of(gamma))
    if adjoint.needs[2]:
        dbeta = sum_to_shape(dy, shape_of(x), shape_of(beta))
    return [dx, dgamma, dbeta]


def _neighbours(x: Expr, shape: tuple[int, ...], before: int, after: int) -> Expr:
    """Sum over the channels from ``before`` below each one to ``after`` above it."""
    others = [(0, 0)] * (len(shape) - 2)
    padded = relay.nn.pad(x, [(0, 0), (before, after), *others])
    total: Expr = None
    for k in range(before + after + 1):
        begin = [0, k] + [0] * (len(shape) - 2)
        part = relay.strided_slice(padded, begin, [shape[0], k + shape[1], *shape[2:]])
        total = part if total is None else total + part
    return total


def local_response(x: Expr, size: int, alpha: float, beta: float, bias: float) -> relay.Call:
    """x (bias + alpha / size * sum of squares over ``size`` channels) ** -beta (Krizhevsky et
    al., NeurIPS 2012). A tuple: y and the base of the power."""
    shape, dtype = shape_of(x), dtype_of(x)
    before, after = (size - 1) // 2, size // 2

    def body(x: Expr) -> Expr:
        squares = _neighbours(x * x, shape, before, after)
        base = scalar(bias, dtype) + scalar(alpha / size, dtype) * squares
        return relay.Tuple([x * relay.power(base, scalar(-beta, dtype)), base])

    return composite("local_response", [x], body, size=size, alpha=float(alpha), beta=float(beta))


@gradient("local_response")
def _local_response(adjoint: Adjoint) -> list[Expr | None]:
    # dx = dy s^-beta - 2 alpha beta / size x (sum of dy x s^(-beta - 1) over who reads x)
    call, dy = adjoint.call, adjoint.outputs[0]
    assert dy is not None
    (x,), attrs, dtype = call.args, call.op.attrs, dtype_of(call.args[0])
    size, alpha, beta = int(attrs["size"]), float(attrs["alpha"]), float(attrs["beta"])
    base = relay.TupleGetItem(call, 1)
    spread = dy * x * relay.power(base, scalar(-beta - 1, dtype))
    reach = _neighbours(spread, shape_of(x), size // 2, (size - 1) // 2)
    direct = dy * relay.power(base, scalar(-beta, dtype))
    return [direct - scalar(2 * alpha * beta / size, dtype) * x * reach]


@gradient("nn.softmax")
def _softmax(adjoint: Adjoint) -> list[Expr | None]:
    y, dy = adjoint.call, adjoint.output
    axis = int(adjoint.call.attrs.axis)
    return [(dy - relay.sum(dy * y, axis=axis, keepdims=True)) * y]


def log_sum_exp(x: Expr, axis: int) -> Expr:
    """log(sum(exp(x))) along ``axis``, kept as one, shifted by the maximum against overflow."""
    top = relay.max(x, axis=axis, keepdims=True)
    return relay.log(relay.sum(relay.exp(x - top), axis=axis, keepdims=True)) + top


def log_softmax(x: Expr, axis: int) -> relay.Call:
    """Logarithm of the softmax along ``axis``; its gradient keeps the output alone."""
    return composite("log_softmax", [x], lambda x: x - log_sum_exp(x, axis), axis=axis)


@gradient("log_softmax")
def _log_softmax(adjoint: Adjoint) -> list[Expr | None]:
    y, dy = adjoint.call, adjoint.output
    axis = int(adjoint.call.op.attrs["axis"])
    return [dy - relay.exp(y) * relay.sum(dy, axis=axis, keepdims=True)]


def softmax_cross_entropy(logits: Expr, labels: Expr, axis: int) -> relay.Call:
    """Mean over rows of -log softmax(logits)[label], and the log-sum-exp of each row.

    ``logits`` has its classes on ``axis`` (not negative); ``labels`` are integers of the shape of
    the logits without that axis. A label outside of the classes adds the row's log-sum-exp.
    """
    dtype = dtype_of(logits)
    rows = math.prod(shape_of(labels))

    def body(logits: Expr, labels: Expr) -> Expr:
        lse = log_sum_exp(logits, axis)
        hit = is_label(labels, shape_of_var(logits), axis)
        picked = relay.sum(relay.where(hit, logits, scalar(0, dtype)), axis=axis, keepdims=True)
        loss = relay.sum(lse - picked) * scalar(1 / rows, dtype)
        return relay.Tuple([loss, lse])

    return composite("softmax_cross_entropy", [logits, labels], body, axis=axis)


def shape_of_var(variable: Expr) -> tuple[int, ...]:
    """Shape a variable was declared with."""
    return tuple(int(d) for d in variable.type_annotation.shape)


def is_label(labels: Expr, shape: tuple[int, ...], axis: int) -> Expr:
    """Boolean tensor of the logits' shape: is this the row's class?"""
    numbers = np.arange(shape[axis]).reshape([-1] + [1] * (len(shape) - axis - 1))
    classes = relay.const(numbers, "int64")
    return relay.equal(relay.expand_dims(relay.cast(labels, "int64"), axis), classes)


@gradient("softmax_cross_entropy")
def _softmax_cross_entropy(adjoint: Adjoint) -> list[Expr | None]:
    # d loss / d logits = (softmax(logits) - onehot(labels)) / rows
    call, dy = adjoint.call, adjoint.outputs[0]
    logits, labels = call.args
    axis, dtype = int(call.op.attrs["axis"]), dtype_of(logits)
    rows = math.prod(shape_of(labels))
    assert dy is not None
    probability = relay.exp(logits - relay.TupleGetItem(call, 1))
    hit = relay.cast(is_label(labels, shape_of(logits), axis), dtype)
    return [(probability - hit) * (dy * scalar(1 / rows, dtype)), None]
