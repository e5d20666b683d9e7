"""Stochastic gradient descent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Real

import numpy as np

from ..autodiff.scalars import scalar
from ..errors import UsageError
from ..relay_graph import Expr, dtype_of
from .optimizer import Update


def _is_number(value: object) -> bool:
    """A real number that float32 can hold; comparing, unlike float(), takes any size of int."""
    most = float(np.finfo("float32").max)
    if isinstance(value, bool) or not isinstance(value, Real):
        return False
    return bool(-most <= value <= most)  # type: ignore[operator]  # Real lacks the reflected one


@dataclass(frozen=True)
class SGD:
    """SGD with momentum, dampening, weight decay and Nesterov's rule, as PyTorch defines them.

    g = gradient + weight_decay * p; v = momentum * v + (1 - dampening) * g, with v = g on the
    first step where dampening is 0; p = p - lr * v, or p - lr * (g + momentum * v) with Nesterov.
    The slot is called ``momentum``. With dampening the first step differs from PyTorch's, which
    does not dampen it. Raises UsageError for values out of range.
    """

    lr: float
    momentum: float = 0.0
    weight_decay: float = 0.0
    dampening: float = 0.0
    nesterov: bool = False

    def __post_init__(self) -> None:
        for name in ("lr", "momentum", "weight_decay", "dampening"):
            value = getattr(self, name)
            if not _is_number(value) or (value < 0 and name != "dampening"):
                raise UsageError(f"SGD: {name} must be a finite float32 number >= 0, got {value!r}")
        if self.nesterov and (self.momentum == 0 or self.dampening != 0):
            raise UsageError("SGD: nesterov needs momentum > 0 and dampening 0")

    def initial_slots(self, parameter: np.ndarray) -> dict[str, np.ndarray]:
        return {"momentum": np.zeros_like(parameter)} if self.momentum else {}

    def update(self, parameter: Expr, gradient: Expr, slots: Mapping[str, Expr]) -> Update:
        dtype = dtype_of(parameter)
        if self.weight_decay:
            gradient = gradient + scalar(self.weight_decay, dtype) * parameter
        if not self.momentum:
            return Update(parameter - scalar(self.lr, dtype) * gradient)
        momentum = scalar(self.momentum, dtype)
        velocity = momentum * slots["momentum"] + scalar(1 - self.dampening, dtype) * gradient
        direction = gradient + momentum * velocity if self.nesterov else velocity
        new = parameter - scalar(self.lr, dtype) * direction
        return Update(new, {"momentum": velocity})
