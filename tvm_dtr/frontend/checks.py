"""What is refused about a model as a whole, or about the size of any of its tensors."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from ..errors import DTRError, ModelError, UsageError

MOST_ELEMENTS = 2**31 - 1  # of a tensor: TVM's kernels compute with 32-bit indices


@contextmanager
def refusing_malformed_graphs() -> Iterator[None]:
    """Any error while a graph is read becomes a ModelError, the original as its cause.

    What is malformed shows in as many ways as there are fields. What a caller's callback raises
    is not to be inside.
    """
    try:
        yield
    except (DTRError, MemoryError):
        raise
    except Exception as error:
        first = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise ModelError(
            f"the ONNX graph cannot be imported ({type(error).__name__}: {first}); "
            "onnx.checker.check_model may tell what is wrong with it"
        ) from error


def checked_shapes(shapes: Any) -> dict[str, tuple[int | str, ...]]:
    """``shapes`` as given to ``build``. Raises UsageError."""
    try:
        return {name: tuple(map(_checked_extent, shape)) for name, shape in dict(shapes).items()}
    except (TypeError, ValueError):
        raise UsageError(
            f"shapes is {shapes!r}, expected a mapping of names to whole numbers, or names for "
            "sizes that change from step to step: {'x': ('time', 4)}"
        ) from None


def _checked_extent(extent: Any) -> int | str:
    if isinstance(extent, str):
        if not extent.isidentifier():
            raise ValueError(extent)
        return extent
    return operator.index(extent)


def check_size(what: str, shape: Sequence[int]) -> None:
    """Raises ModelError for a tensor of too many elements, or of none."""
    count = math.prod(shape)
    if count > MOST_ELEMENTS:
        raise ModelError(
            f"{what} has the shape {tuple(shape)} of {count:.3g} elements, more than the "
            f"{MOST_ELEMENTS} that kernels can index; use smaller shapes"
        )
    if not count:
        raise ModelError(
            f"{what} has the shape {tuple(shape)}, which holds no element; expected sizes of at "
            "least 1"
        )
