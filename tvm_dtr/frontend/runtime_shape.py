"""Sizes that are known at run time only, as tensors. Known ones are folded by the importer."""

from __future__ import annotations

from tvm import relay

from ..relay_graph import Expr
from .node import Node
from .registry import converter


@converter("Shape")
def shape(node: Node) -> Expr:
    x = node.tensor(0)
    rank = len(x.checked_type.shape)
    start, stop, _ = slice(node.attr("start", 0), node.attr("end")).indices(rank)
    whole = relay.shape_of(x, "int64")
    return relay.strided_slice(whole, [start], [stop]) if stop - start < rank else whole


@converter("Size")
def size(node: Node) -> Expr:
    return relay.prod(relay.shape_of(node.tensor(0), "int64"))
