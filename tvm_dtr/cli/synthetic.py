"""Seeded inputs for a program, where no data is at hand."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tvm_dtr.errors import UsageError


def synthetic_inputs(program: Any, seed: int) -> dict[str, np.ndarray]:
    """One batch for every input of ``program`` (a tvm_dtr.Program).

    Floats are standard normal, ``labels`` uniform over the classes that the model's output
    tells, other integers 0 or 1. The same seed gives the same batch.

    Raises:
      UsageError: an input has a type that cannot be drawn, or the classes are not known.
    """
    random = np.random.default_rng(seed)
    return {spec.name: _draw(random, spec, program) for spec in program.inputs}


def _draw(random: np.random.Generator, spec: Any, program: Any) -> np.ndarray:
    dtype = np.dtype(spec.dtype)
    if dtype.kind == "f":
        return random.standard_normal(spec.shape).astype(dtype)
    if dtype.kind in "iu":
        high = class_count(program, spec.shape) if spec.name == "labels" else 2
        return random.integers(0, high, spec.shape).astype(dtype)
    if dtype.kind == "b":
        return random.integers(0, 2, spec.shape).astype(dtype)
    raise UsageError(f"input '{spec.name}' of type {spec.dtype} cannot be made up")


def class_count(program: Any, labels_shape: tuple[int, ...]) -> int:
    """How many classes the first output tells apart: its size over that of the labels."""
    graph = program.graph
    for result, tensor in zip(program.results, graph.results, strict=True):
        if result.kind == "output" and result.name != "loss":
            classes, rest = divmod(math.prod(graph.tensors[tensor].shape), math.prod(labels_shape))
            if classes >= 1 and rest == 0:
                return classes
    raise UsageError("the number of classes is not known: the program returns no logits")
