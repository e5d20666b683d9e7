"""Stochastic gradient descent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from tvm import relay

from ..autodiff.scalars import scalar
from ..errors import UsageError
from ..relay_graph import Expr, dtype_of
from .optimizer import StepScalars, Update, check_numbers, is_number


@dataclass(frozen=True)
class SGD:
    """SGD with momentum, dampening, weight decay and Nesterov's rule, as PyTorch defines them.

    g = gradient + weight_decay * p; v = momentum * v + (1 - dampening) * g, with v = g on the
    first step; p = p - lr * v, or p - lr * (g + momentum * v) with Nesterov. The slot is called
    ``momentum``. Raises UsageError for values out of range.
    """

    lr: float = 1e-3
    momentum: float = 0.0
    weight_decay: float = 0.0
    dampening: float = 0.0
    nesterov: bool = False

    def __post_init__(self) -> None:
        check_numbers(self, "lr", "momentum", "weight_decay")
        if not is_number(self.dampening):
            raise UsageError(
                f"SGD: dampening must be a finite float32 number, got {self.dampening!r}"
            )
        if self.nesterov and (self.momentum == 0 or self.dampening != 0):
            raise UsageError("SGD: nesterov needs momentum > 0 and dampening 0")

    def initial_slots(self, parameter: np.ndarray) -> dict[str, np.ndarray]:
        return {"momentum": np.zeros_like(parameter)} if self.momentum else {}

    def update(
        self, parameter: Expr, gradient: Expr, slots: Mapping[str, Expr], scalars: StepScalars
    ) -> Update:
        dtype = dtype_of(parameter)
        if self.weight_decay:
            gradient = gradient + scalar(self.weight_decay, dtype) * parameter
        if not self.momentum:
            return Update(parameter - scalars.rate(dtype) * gradient)
        momentum = scalar(self.momentum, dtype)
        velocity = momentum * slots["momentum"] + self._share(scalars, dtype) * gradient
        direction = gradient + momentum * velocity if self.nesterov else velocity
        new = parameter - scalars.rate(dtype) * direction
        return Update(new, {"momentum": velocity})

    def _share(self, scalars: StepScalars, dtype: str) -> Expr:
        """Of the gradient in the velocity: the first step is not dampened."""
        if not self.dampening:
            return scalar(1, dtype)
        later, first = scalar(1 - self.dampening, "float64"), scalar(1, "float64")
        return scalars.once("share", dtype, lambda: relay.where(scalars.step > first, later, first))
