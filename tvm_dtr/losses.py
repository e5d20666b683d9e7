"""Losses: from the model's outputs to one scalar expression."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from tvm import relay

from .autodiff.normalization import softmax_cross_entropy
from .autodiff.scalars import scalar
from .errors import ModelError, UsageError
from .relay_graph import Expr, dtype_of, infer_local, shape_of
from .training import TensorSpec


@dataclass(frozen=True)
class Loss:
    """A scalar expression and what the user must feed for it besides the model's inputs."""

    value: Expr
    input: TensorSpec | None = None
    variable: relay.Var | None = None


def _fed(
    name: str, shape: tuple[int, ...], dtype: str, classes: int | None = None
) -> tuple[TensorSpec, relay.Var]:
    variable = infer_local(relay.var(name, shape=shape, dtype=dtype))
    return TensorSpec(name, shape, dtype, classes), variable


def cross_entropy(name: str, output: Expr) -> Loss:
    """Mean over rows of the softmax cross entropy of logits ``output``.

    ``labels`` (int64) has the shape of the logits without the class axis, which is axis 1 for
    three and more axes (ONNX's convention) and the last axis of a matrix or vector.
    """
    shape = shape_of(output)
    if not shape:
        raise ModelError(f"output '{name}' is a scalar; cross_entropy expects logits (N, C, ...)")
    axis = 1 if len(shape) > 2 else len(shape) - 1
    spec, labels = _fed("labels", shape[:axis] + shape[axis + 1 :], "int64", shape[axis])
    call = infer_local(softmax_cross_entropy(output, labels, axis))
    return Loss(relay.TupleGetItem(call, 0), spec, labels)


def mse(name: str, output: Expr) -> Loss:
    """Mean of the squared difference to ``target``, of the output's shape and dtype."""
    shape, dtype = shape_of(output), dtype_of(output)
    spec, target = _fed("target", shape, dtype)
    off = infer_local(relay.subtract(output, target))
    return Loss(relay.sum(off * off) * scalar(1 / max(math.prod(shape), 1), dtype), spec, target)


def output_itself(name: str, output: Expr) -> Loss:
    """The model computes its own loss: its first output, one number."""
    shape = shape_of(output)
    if math.prod(shape) != 1:
        raise ModelError(
            f"loss 'output' needs a scalar first output; '{name}' has the shape {shape}"
        )
    return Loss(relay.reshape(output, ()) if shape else output)


LOSSES: dict[str, Callable[[str, Expr], Loss]] = {
    "cross_entropy": cross_entropy,
    "mse": mse,
    "output": output_itself,
}


def make_loss(loss: str, outputs: list[tuple[str, Expr]]) -> Loss:
    """The loss called ``loss`` of a model's first output.

    Raises UsageError for an unknown loss, ModelError for an output that does not suit it.
    """
    if not isinstance(loss, str) or loss not in LOSSES:
        raise UsageError(f"unknown loss {loss!r}; the losses are {', '.join(sorted(LOSSES))}")
    name, output = outputs[0]
    if "float" not in dtype_of(output):
        raise ModelError(
            f"output '{name}' is {dtype_of(output)}; loss '{loss}' needs a floating-point output"
        )
    return LOSSES[loss](name, output)
