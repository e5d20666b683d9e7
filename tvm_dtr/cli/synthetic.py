"""Seeded inputs for a program, where no data is at hand."""

from __future__ import annotations

from typing import Any

import numpy as np

from tvm_dtr.data.synthetic import draw


def synthetic_inputs(program: Any, seed: int) -> dict[str, np.ndarray]:
    """One batch for every input of ``program`` (a tvm_dtr.Program): see tvm_dtr.data.synthetic.

    The same seed gives the same batch. Raises UsageError for a type that cannot be drawn.
    """
    random = np.random.default_rng(seed)
    return {spec.name: draw(random, spec) for spec in program.inputs}
