"""Seeded inputs for a program, where no data is at hand."""

from __future__ import annotations

from typing import Any

import numpy as np

from tvm_dtr.errors import UsageError


def synthetic_inputs(program: Any, seed: int) -> dict[str, np.ndarray]:
    """One batch for every input of ``program`` (a tvm_dtr.Program).

    Floats are standard normal, labels uniform over their classes, other integers 0 or 1. The same
    seed gives the same batch. An input with a default takes it.

    Raises:
      UsageError: an input has a type that cannot be drawn.
    """
    random = np.random.default_rng(seed)
    return {spec.name: _draw(random, spec) for spec in program.inputs}


def _draw(random: np.random.Generator, spec: Any) -> np.ndarray:
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
