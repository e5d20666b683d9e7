"""RMSprop (Tieleman and Hinton, 2012; centered: Graves, 2013)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from tvm import relay

from ..autodiff.scalars import scalar
from ..relay_graph import Expr, dtype_of
from .optimizer import StepScalars, Update, check_fractions, check_numbers


@dataclass(frozen=True)
class RMSprop:
    """RMSprop as PyTorch defines it.

    g = gradient + weight_decay * p; s = alpha s + (1 - alpha) g^2; scale = sqrt(s) + eps, of
    s - mean(g)^2 where ``centered``; p = p - lr * g / scale, or with momentum
    b = momentum * b + g / scale and p = p - lr * b. Slots: ``square_avg``, ``grad_avg``,
    ``momentum_buffer``. Raises UsageError for values out of range.
    """

    lr: float = 1e-2
    alpha: float = 0.99
    eps: float = 1e-8
    weight_decay: float = 0.0
    momentum: float = 0.0
    centered: bool = False

    def __post_init__(self) -> None:
        check_numbers(self, "lr", "eps", "weight_decay", "momentum")
        check_fractions(self, "alpha", self.alpha, 1)

    def initial_slots(self, parameter: np.ndarray) -> dict[str, np.ndarray]:
        names = ["square_avg"]
        names += ["grad_avg"] if self.centered else []
        names += ["momentum_buffer"] if self.momentum else []
        return {name: np.zeros_like(parameter) for name in names}

    def update(
        self, parameter: Expr, gradient: Expr, slots: Mapping[str, Expr], scalars: StepScalars
    ) -> Update:
        dtype = dtype_of(parameter)
        if self.weight_decay:
            gradient = gradient + scalar(self.weight_decay, dtype) * parameter
        rest = scalar(1 - self.alpha, dtype)
        square = scalar(self.alpha, dtype) * slots["square_avg"] + rest * (gradient * gradient)
        new = {"square_avg": square}
        variance = square
        if self.centered:
            mean = slots["grad_avg"] + rest * (gradient - slots["grad_avg"])
            new["grad_avg"] = mean
            variance = square - mean * mean
        direction = gradient / (relay.sqrt(variance) + scalar(self.eps, dtype))
        if self.momentum:
            direction = scalar(self.momentum, dtype) * slots["momentum_buffer"] + direction
            new["momentum_buffer"] = direction
        return Update(parameter - scalars.rate(dtype) * direction, new)
