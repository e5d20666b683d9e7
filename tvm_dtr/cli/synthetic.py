"""Seeded inputs for a program, where no data is at hand."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from tvm_dtr.data.synthetic import draw
from tvm_dtr.models.tree_lstm import random_tree

LENGTHS = (1, 32)  # of dimensions that change from step to step, where none are given

Lengths = Mapping[str, tuple[int, int]]


def synthetic_inputs(
    program: Any, seed: int, step: int = 0, lengths: Lengths | None = None
) -> dict[str, np.ndarray]:
    """One batch for every input of ``program`` (a tvm_dtr.Program): see tvm_dtr.data.synthetic.

    The same seed gives the same batch. With control flow each step has a batch of its own:
    dimensions with a name, and whole numbers that ``lengths`` names, are drawn from ``lengths``
    (first and last value). Raises UsageError for a type that cannot be drawn.
    """
    varies = getattr(program, "control_flow", False)
    random = np.random.default_rng([seed, step] if varies and step else seed)
    ranges = dict(lengths or {})
    names = {n for spec in program.inputs for n in spec.shape if isinstance(n, str)}
    names |= {spec.name for spec in program.inputs if spec.name in ranges}
    sizes = {n: _size(random, ranges.get(n, LENGTHS)) for n in sorted(names)}
    drawn = {spec.name: _draw(random, spec, sizes) for spec in program.inputs}
    if varies and set(_TREE) <= drawn.keys():
        drawn |= _tree(random, {spec.name: spec for spec in program.inputs}, sizes)
    return drawn


# What tvm_dtr.models names the inputs of a TreeFold: whole numbers at random would be no tree, and
# folding them might never end.
_TREE = ("left", "right", "root")


def _tree(
    random: np.random.Generator, specs: Mapping[str, Any], sizes: dict[str, int]
) -> dict[str, np.ndarray]:
    """A random binary tree of as many nodes as the inputs have rows; one left over stands alone."""
    rows = specs["left"].shape[0]
    nodes = sizes[rows] if isinstance(rows, str) else rows
    tree = random_tree((nodes + 1) // 2, int(random.integers(2**31)))
    alone = nodes - len(tree["left"])
    for side in ("left", "right"):
        tree[side] = np.concatenate([tree[side], np.full(alone, -1)])
    return {name: np.asarray(tree[name], specs[name].dtype) for name in _TREE}


def _size(random: np.random.Generator, limits: tuple[int, int]) -> int:
    return int(random.integers(limits[0], limits[1] + 1))


def _draw(random: np.random.Generator, spec: Any, sizes: dict[str, int]) -> np.ndarray:
    if spec.name in sizes and np.dtype(spec.dtype).kind in "iu":
        return np.full(spec.shape, sizes[spec.name], spec.dtype)
    shape = tuple(sizes[n] if isinstance(n, str) else n for n in spec.shape)
    return draw(random, replace(spec, shape=shape))
