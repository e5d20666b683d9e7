"""The table of ONNX op converters."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ..relay_graph import Expr

if TYPE_CHECKING:
    from .node import Node
    from .sequences import TensorSequence

Converter = Callable[["Node"], "Expr | list[Expr | TensorSequence | None]"]

CONVERTERS: dict[str, Converter] = {}


def converter(*ops: str) -> Callable[[Converter], Converter]:
    """Register a converter for ONNX ops of the default domain."""

    def register(convert: Converter) -> Converter:
        for op in ops:
            assert op not in CONVERTERS, op
            CONVERTERS[op] = convert
        return convert

    return register
