"""Converters of normalizations."""

from __future__ import annotations

from tvm import relay

from ..autodiff.composite import composite
from ..autodiff.normalization import batch_norm, local_response, normalize
from ..autodiff.reduce import euclidean_norm
from ..autodiff.scalars import scalar
from ..relay_graph import Expr, dtype_of, shape_of
from .node import Node
from .registry import converter


@converter("BatchNormalization")
def batch_normalization(node: Node) -> list[Expr | None]:
    """Training mode, also for a model that was exported for inference: it is here to be trained.

    The running statistics follow ONNX (operator set 15): running * momentum + batch *
    (1 - momentum), with the biased variance of the batch. PyTorch's exporters write
    1 - momentum of PyTorch; PyTorch itself uses the unbiased variance in this update.
    """
    x, gamma, beta = node.tensor(0), node.weight(1), node.weight(2)
    if len(shape_of(x)) < 2:
        raise node.error(f"input {shape_of(x)}; expected at least two axes (N, C, ...)")
    if not node.training:
        return [_by_running_statistics(node, x, gamma, beta), None, None]
    norm = batch_norm(x, gamma, beta, node.attr("epsilon", 1e-5))
    momentum = float(node.attr("momentum", 0.9))
    running = []
    for operand, field in ((3, 1), (4, 2)):
        old = node.running(operand)
        dtype = dtype_of(old)
        keep, take = relay.const(momentum, dtype), relay.const(1 - momentum, dtype)
        running.append(old * keep + relay.TupleGetItem(norm, field) * take)
        node.update_running(operand, running[-1])
    return [relay.TupleGetItem(norm, 0), *running]


def _by_running_statistics(node: Node, x: Expr, gamma: Expr, beta: Expr) -> Expr:
    mean, variance = node.running(3), node.running(4)
    dtype, axes = dtype_of(variance), len(shape_of(x)) - 2
    scale = gamma / relay.sqrt(variance + relay.const(node.attr("epsilon", 1e-5), dtype))
    scale, shift = node.typed(scale), node.typed(beta - mean * scale)
    if axes:
        scale, shift = (relay.expand_dims(v, 1, axes) for v in (scale, shift))
    return x * scale + shift


@converter("LayerNormalization")
def layer_normalization(node: Node) -> list[Expr | None]:
    x, gamma = node.tensor(0), node.weight(1)
    shape = shape_of(x)
    axis = node.attr("axis", -1) % len(shape)
    zero = relay.broadcast_to(scalar(0, dtype_of(x)), shape[axis:])
    beta = node.weight(2) if node.has(2) else node.typed(zero)
    norm = normalize(
        x, gamma, beta, axes=list(range(axis, len(shape))), epsilon=node.attr("epsilon", 1e-5)
    )
    return [relay.TupleGetItem(norm, i) for i in range(3)]


@converter("RMSNormalization")
def rms_normalization(node: Node) -> Expr:
    x, gamma = node.tensor(0), node.weight(1)
    shape, dtype = shape_of(x), dtype_of(x)
    axes = list(range(node.attr("axis", -1) % len(shape), len(shape)))

    def body(x: Expr, gamma: Expr) -> Expr:
        square = relay.mean(x * x, axis=axes, keepdims=True)
        return x * relay.rsqrt(square + scalar(node.attr("epsilon", 1e-5), dtype)) * gamma

    return composite("rms_norm", [x, gamma], body)


@converter("InstanceNormalization")
def instance_normalization(node: Node) -> Expr:
    x = node.tensor(0)
    shape = shape_of(x)
    per_channel = (shape[1], *[1] * (len(shape) - 2))
    # Not `weight`: PyTorch exports a group norm with ones and zeros of Constant nodes here, and
    # the scale that is trained as a product after it.
    gamma, beta = (node.typed(relay.reshape(node.tensor(i), per_channel)) for i in (1, 2))
    axes = list(range(2, len(shape)))
    norm = normalize(x, gamma, beta, axes=axes, epsilon=node.attr("epsilon", 1e-5))
    return relay.TupleGetItem(norm, 0)


@converter("GroupNormalization")
def group_normalization(node: Node) -> Expr:
    x = node.tensor(0)
    shape = shape_of(x)
    groups, channels = node.attr("num_groups"), shape[1]
    split = (shape[0], groups, channels // groups, *shape[2:])
    # Before operator set 21, scale and bias have one element per group.
    per = (groups, channels // groups if node.shape(1) == (channels,) else 1)
    affine = (*per, *[1] * (len(shape) - 2))
    gamma, beta = (node.typed(relay.reshape(node.weight(i), affine)) for i in (1, 2))
    rows = node.typed(relay.reshape(x, split))
    axes = list(range(2, len(split)))
    norm = normalize(rows, gamma, beta, axes=axes, epsilon=node.attr("epsilon", 1e-5))
    return relay.reshape(relay.TupleGetItem(norm, 0), shape)


@converter("LRN")
def local_response_normalization(node: Node) -> Expr:
    x = node.tensor(0)
    if len(shape_of(x)) < 2:
        raise node.error(f"input {shape_of(x)}; expected at least two axes (N, C, ...)")
    call = local_response(
        x,
        size=node.attr("size"),
        alpha=node.attr("alpha", 1e-4),
        beta=node.attr("beta", 0.75),
        bias=node.attr("bias", 1.0),
    )
    return relay.TupleGetItem(call, 0)


@converter("LpNormalization")
def lp_normalization(node: Node) -> Expr:
    x, p = node.tensor(0), node.attr("p", 2)
    axis = node.attr("axis", -1) % len(shape_of(x))
    if p not in (1, 2):
        raise node.error(f"p is {p}; expected 1 or 2")
    if p == 1:
        return x / relay.sum(relay.abs(x), axis=[axis], keepdims=True)
    return x / euclidean_norm(x, [axis], keepdims=True)
