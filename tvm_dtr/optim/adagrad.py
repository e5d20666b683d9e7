"""Adagrad (Duchi, Hazan and Singer, JMLR 2011)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from tvm import relay

from ..autodiff.scalars import scalar
from ..relay_graph import Expr, dtype_of
from .optimizer import StepScalars, Update, check_numbers


@dataclass(frozen=True)
class Adagrad:
    """Adagrad as PyTorch defines it.

    g = gradient + weight_decay * p; s = s + g^2;
    p = p - lr / (1 + (t - 1) lr_decay) * g / (sqrt(s) + eps). Slot: ``sum``. Raises UsageError for
    values out of range.
    """

    lr: float = 1e-2
    lr_decay: float = 0.0
    weight_decay: float = 0.0
    initial_accumulator_value: float = 0.0
    eps: float = 1e-10

    def __post_init__(self) -> None:
        check_numbers(self, "lr", "lr_decay", "weight_decay", "initial_accumulator_value", "eps")

    def initial_slots(self, parameter: np.ndarray) -> dict[str, np.ndarray]:
        return {"sum": np.full_like(parameter, self.initial_accumulator_value)}

    def update(
        self, parameter: Expr, gradient: Expr, slots: Mapping[str, Expr], scalars: StepScalars
    ) -> Update:
        dtype = dtype_of(parameter)
        if self.weight_decay:
            gradient = gradient + scalar(self.weight_decay, dtype) * parameter
        total = slots["sum"] + gradient * gradient
        rate = scalars.once("decayed", dtype, lambda: self._rate(scalars))
        scale = relay.sqrt(total) + scalar(self.eps, dtype)
        return Update(parameter - rate * (gradient / scale), {"sum": total})

    def _rate(self, scalars: StepScalars) -> Expr:
        if not self.lr_decay:
            return scalars.lr
        one = scalar(1, "float64")
        return scalars.lr / (one + (scalars.step - one) * scalar(self.lr_decay, "float64"))
