"""A training step as one Relay function: forward, loss, backward, parameter updates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .onnx_export import ModelSource


@dataclass(frozen=True)
class TensorSpec:
    """A tensor that goes into a step.

    ``shape``: a name stands for a size that may change from step to step; the same name is the
    same size. ``classes``: its values are 0 to ``classes - 1``, if set. ``default``: what a scalar
    is where a step is given none. ``children``: its value is the root of the binary tree whose left
    and right children of each node are in these inputs.
    """

    name: str
    shape: tuple[int | str, ...]
    dtype: str
    classes: int | None = None
    default: float | None = None
    children: tuple[str, str] | None = None


@dataclass(frozen=True)
class Result:
    """A tensor that comes out of a step.

    ``kind`` is "output" (given to the user) or "state" (the next step's ``state[name]``).
    """

    name: str
    kind: str


@dataclass
class TrainingStep:
    """A step without its kernels.

    ``function`` is in graph form (no lets), typed, with static shapes. Its parameters are
    ``inputs`` then ``state``, in order and by name; its body is the tuple of ``results``. A
    depth-first post-order walk of the body is a good execution order: the loss first, which runs
    the whole forward pass, then outputs, running statistics, and the updates of the parameters
    from the last layer to the first, each as soon as its gradient is final. Nothing is written in
    place: state goes in and comes out as values.

    With control flow that depends on the data, ``module`` is the whole of it, not yet typed: a
    Relay module of recursive functions whose "main" is ``function``.

    ``source``: what the step was built from, where it can be had back.
    ``parameter_names`` is the trainable part of the state; ``sources`` maps the spans of calls to
    (name, op) of the ONNX node they come from. ``accumulate``: steps per update.
    """

    function: Any
    inputs: list[TensorSpec]
    state: list[TensorSpec]
    initial_state: dict[str, np.ndarray]
    results: list[Result]
    parameter_names: list[str]
    sources: dict[str, tuple[str, str]] = field(default_factory=dict)
    module: Any = None
    source: ModelSource | None = None
    accumulate: int = 1


Shapes = Mapping[str, Sequence[int | str]]
