"""Converters of reductions."""

from __future__ import annotations

from collections.abc import Callable

from tvm import relay

from ..autodiff.reduce import euclidean_norm, reduce_log_sum_exp
from ..relay_graph import Expr, shape_of
from .node import Node
from .registry import CONVERTERS

# (typed operand, non-negative axes, keepdims) -> result
Reduction = Callable[[Expr, list[int], bool], Expr]


def _l1(x: Expr, axes: list[int], keepdims: bool) -> Expr:
    return relay.sum(relay.abs(x), axes, keepdims)


def _sum_square(x: Expr, axes: list[int], keepdims: bool) -> Expr:
    return relay.sum(x * x, axes, keepdims)


def _log_sum(x: Expr, axes: list[int], keepdims: bool) -> Expr:
    return relay.log(relay.sum(x, axes, keepdims))


_REDUCTIONS: dict[str, Reduction] = {
    "ReduceL1": _l1,
    "ReduceL2": euclidean_norm,
    "ReduceLogSum": _log_sum,
    "ReduceLogSumExp": reduce_log_sum_exp,
    "ReduceMax": relay.max,
    "ReduceMean": relay.mean,
    "ReduceMin": relay.min,
    "ReduceProd": relay.prod,
    "ReduceSum": relay.sum,
    "ReduceSumSquare": _sum_square,
}


def _convert_reduction(op: Reduction) -> Callable[[Node], Expr]:
    def convert(node: Node) -> Expr:
        x = node.tensor(0)
        rank = len(shape_of(x))
        # The axes moved from an attribute to an operand in operator sets 13 and 18.
        axes = node.attr("axes", node.ints(1))
        if not axes and node.attr("noop_with_empty_axes", 0):
            return x
        axes = sorted({a % rank for a in axes}) if axes else list(range(rank))
        return op(x, axes, bool(node.attr("keepdims", 1)))

    return convert


CONVERTERS.update({name: _convert_reduction(op) for name, op in _REDUCTIONS.items()})
