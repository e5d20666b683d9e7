"""Named values of an ONNX graph during import."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ..relay_graph import Expr

if TYPE_CHECKING:
    from .sequences import TensorSequence


@dataclass
class Value:
    """One tensor of the ONNX graph.

    ``data`` holds what is known at import (initializers, Constant nodes, folded shapes);
    ``expr`` is typed and made on first use for those, since only the use tells whether a tensor
    is a parameter, a running statistic or a constant. ``stored`` is true for initializers. A
    ``sequence`` of tensors is neither.
    """

    name: str
    expr: Expr | None = None
    data: np.ndarray | None = None
    stored: bool = False
    sequence: TensorSequence | None = None

    @property
    def trainable(self) -> bool:
        """A stored float tensor with at least one axis: a parameter unless used otherwise."""
        return (
            self.stored
            and self.data is not None
            and self.data.ndim > 0
            and self.data.dtype.kind == "f"
        )
