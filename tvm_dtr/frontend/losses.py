"""Converters of ONNX's classification losses."""

from __future__ import annotations

from tvm import relay

from ..autodiff.cross_entropy import CLASS_AXIS, negative_log_likelihood
from ..autodiff.normalization import log_softmax
from ..relay_graph import Expr, dtype_of, shape_of
from .node import Node
from .registry import converter


def _loss(node: Node, scores: Expr, softmax: bool) -> Expr:
    shape, labels = shape_of(scores), node.tensor(1)
    if len(shape) < 2 or shape_of(labels) != (shape[0], *shape[2:]):
        raise node.error(
            f"scores {shape} and labels {shape_of(labels)}; expected (N, C, ...), (N, ...)"
        )
    reduction = node.attr("reduction", "mean")
    if reduction not in ("none", "sum", "mean"):
        raise node.error(f"reduction '{reduction}'; expected none, sum, mean")
    weights = None
    if node.has(2):  # never a parameter: nobody trains the weights of the classes
        known = node.known(2)
        weights = (
            node.tensor(2) if known is None else node.typed(relay.const(known, str(known.dtype)))
        )
    ignored = node.attr("ignore_index")
    call = negative_log_likelihood(scores, labels, weights, reduction, ignored, softmax)
    return relay.TupleGetItem(call, 0)


@converter("NegativeLogLikelihoodLoss")
def negative_log_likelihood_loss(node: Node) -> Expr:
    return _loss(node, node.tensor(0), softmax=False)


@converter("SoftmaxCrossEntropyLoss")
def softmax_cross_entropy_loss(node: Node) -> list[Expr | None]:
    scores = node.tensor(0)
    if not node.wants(1):
        return [_loss(node, scores, softmax=True)]
    logs = node.typed(log_softmax(scores, CLASS_AXIS))
    assert dtype_of(logs) == dtype_of(scores)
    return [_loss(node, logs, softmax=False), logs]
