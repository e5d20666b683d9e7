"""What a training step is: one Relay function from inputs and state to results and new state."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np


@dataclass(frozen=True)
class TensorSpec:
    """A named tensor of fixed shape (elements per axis) and dtype (a numpy name)."""

    name: str
    shape: tuple[int, ...]
    dtype: str


@dataclass(frozen=True)
class Result:
    """One result of a step; kind "output" is given to the user, "state" is carried over."""

    name: str
    kind: str


@dataclass
class TrainingStep:
    """A straight-line training step in Relay's graph form (dataflow, no lets, static shapes).

    The function's parameters are inputs then state; its body is a tuple of results.
    """

    function: Any
    inputs: list[TensorSpec]
    state: list[TensorSpec]
    initial_state: dict[str, np.ndarray]
    results: list[Result]
    parameter_names: list[str]
    sources: dict = field(default_factory=dict)
