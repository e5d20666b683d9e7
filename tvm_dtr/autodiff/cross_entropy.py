"""ONNX's classification losses, with class weights and labels that are ignored."""

from __future__ import annotations

import math
from dataclasses import dataclass

from tvm import relay

from ..relay_graph import Expr, dtype_of, shape_of
from .composite import composite
from .normalization import is_label, log_sum_exp
from .rules import Adjoint, gradient
from .scalars import scalar, select

CLASS_AXIS = 1


@dataclass(frozen=True)
class _Loss:
    """What a loss was called with. ``labels`` is the shape of the labels; ``ignored`` a label
    that counts for nothing, or None; ``softmax``: the scores are logits, not log-probabilities."""

    scores: tuple[int, ...]
    dtype: str
    reduction: str
    ignored: int | None
    softmax: bool

    @property
    def labels(self) -> tuple[int, ...]:
        return (self.scores[0], *self.scores[2:])

    def row_weights(self, labels: Expr, weights: Expr | None) -> Expr | None:
        """Weight of each row, of the labels' shape; None if all are one."""
        rows = None
        if weights is not None:
            index = relay.clip(relay.cast(labels, "int64"), 0, self.scores[CLASS_AXIS] - 1)
            rows = relay.take(weights, index, axis=0, mode="fast")
        if self.ignored is not None:
            label = relay.const(self.ignored, "int64")
            counts = relay.not_equal(relay.cast(labels, "int64"), label)
            if rows is None:
                return relay.cast(counts, self.dtype)
            rows = select(counts, rows, self.dtype)
        return rows

    def per_row(self, expr: Expr) -> Expr:
        """A tensor of the labels' shape that broadcasts against the scores."""
        return relay.expand_dims(expr, CLASS_AXIS)


def negative_log_likelihood(
    scores: Expr,
    labels: Expr,
    weights: Expr | None,
    reduction: str,
    ignored: int | None,
    softmax: bool,
) -> relay.Call:
    """Minus the label's log-probability times the label's weight.

    ``scores`` is (N, C, ...), ``labels`` are integers (N, ...), ``weights`` (C,). A tuple: the
    loss (of the labels' shape, or a scalar: the sum, or the mean over the sum of the weights),
    the rows' log-sum-exp (with the class axis as one) and the sum of the weights.
    """
    loss = _Loss(shape_of(scores), dtype_of(scores), reduction, ignored, softmax)
    operands = [scores, labels, *([] if weights is None else [weights])]

    def body(scores: Expr, labels: Expr, *weights: Expr) -> Expr:
        zero = scalar(0, loss.dtype)
        hit = is_label(labels, loss.scores, CLASS_AXIS)
        picked = relay.sum(relay.where(hit, scores, zero), axis=CLASS_AXIS)
        lse = log_sum_exp(scores, CLASS_AXIS) if softmax else zero
        each = relay.reshape(lse, loss.labels) - picked if softmax else relay.negative(picked)
        rows = loss.row_weights(labels, *weights or (None,))
        total: Expr = scalar(math.prod(loss.labels), loss.dtype)
        if rows is not None:
            each, total = each * rows, relay.sum(rows)
        if reduction == "none":
            return relay.Tuple([each, lse, total])
        value = relay.sum(each)
        return relay.Tuple([value / total if reduction == "mean" else value, lse, total])

    return composite(
        "negative_log_likelihood",
        operands,
        body,
        reduction=reduction,
        softmax=int(softmax),
        ignored=[] if ignored is None else [ignored],
    )


@gradient("negative_log_likelihood")
def _negative_log_likelihood(adjoint: Adjoint) -> list[Expr | None]:
    # d loss / d scores = weight (softmax - onehot), or weight (-onehot), times the row's adjoint
    call, dy = adjoint.call, adjoint.outputs[0]
    scores, labels, *weights = call.args
    attrs = call.op.attrs
    ignored = [int(i) for i in attrs["ignored"]]
    loss = _Loss(
        shape_of(scores),
        dtype_of(scores),
        str(attrs["reduction"]),
        ignored[0] if ignored else None,
        bool(int(attrs["softmax"])),
    )
    assert dy is not None
    rows = loss.row_weights(labels, *weights or (None,))
    if loss.reduction == "mean":
        dy = dy / relay.TupleGetItem(call, 2)
    if loss.reduction == "none":
        dy = loss.per_row(dy)
    if rows is not None:
        dy = dy * loss.per_row(rows)
    off = relay.cast(is_label(labels, loss.scores, CLASS_AXIS), loss.dtype)
    if loss.softmax:
        off = off - relay.exp(scores - relay.TupleGetItem(call, 1))
    return [relay.negative(dy * off), None, *[None for _ in weights]]
