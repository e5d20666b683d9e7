"""Lion (Chen et al., Symbolic Discovery of Optimization Algorithms, NeurIPS 2023)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from tvm import relay

from ..autodiff.scalars import scalar
from ..relay_graph import Expr, dtype_of
from .adam import decay_factor
from .optimizer import StepScalars, Update, check_fractions, check_numbers


@dataclass(frozen=True)
class Lion:
    """Lion by its paper's algorithm 2, with the paper's defaults.

    p = p (1 - lr * weight_decay) - lr * sign(b1 m + (1 - b1) g); m = b2 m + (1 - b2) g. Slot:
    ``exp_avg``. Raises UsageError for values out of range.
    """

    lr: float = 1e-4
    betas: tuple[float, float] = (0.9, 0.99)
    weight_decay: float = 0.0

    def __post_init__(self) -> None:
        check_numbers(self, "lr", "weight_decay")
        check_fractions(self, "betas", self.betas, 2)

    def initial_slots(self, parameter: np.ndarray) -> dict[str, np.ndarray]:
        return {"exp_avg": np.zeros_like(parameter)}

    def update(
        self, parameter: Expr, gradient: Expr, slots: Mapping[str, Expr], scalars: StepScalars
    ) -> Update:
        dtype, mean = dtype_of(parameter), slots["exp_avg"]
        b1, b2 = self.betas
        direction = relay.sign(scalar(b1, dtype) * mean + scalar(1 - b1, dtype) * gradient)
        start = parameter
        if self.weight_decay:
            start = parameter * decay_factor(scalars, self.weight_decay, dtype)
        new_mean = scalar(b2, dtype) * mean + scalar(1 - b2, dtype) * gradient
        return Update(start - scalars.rate(dtype) * direction, {"exp_avg": new_mean})
