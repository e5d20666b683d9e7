"""Made-up tensors for a program's inputs."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..errors import UsageError


def draw(random: np.random.Generator, spec: Any) -> np.ndarray:
    """Floats are standard normal, labels uniform over their classes, other integers 0 or 1; an
    input with a default takes it. Raises UsageError for a type that cannot be drawn."""
    dtype = np.dtype(spec.dtype)
    if spec.default is not None:
        return np.array(spec.default, dtype)
    if dtype.kind == "f":
        return random.standard_normal(spec.shape).astype(dtype)
    if dtype.kind in "iu":
        return random.integers(0, spec.classes or 2, spec.shape).astype(dtype)
    if dtype.kind == "b":
        return random.integers(0, 2, spec.shape).astype(dtype)
    raise UsageError(f"input '{spec.name}' of type {spec.dtype} cannot be made up")
