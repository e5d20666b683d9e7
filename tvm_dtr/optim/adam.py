"""Adam (Kingma and Ba, ICLR 2015) and AdamW (Loshchilov and Hutter, ICLR 2019)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from tvm import relay

from ..autodiff.scalars import scalar
from ..relay_graph import Expr, dtype_of
from .optimizer import StepScalars, Update, check_fractions, check_numbers


@dataclass(frozen=True)
class Adam:
    """Adam as PyTorch defines it, with weight decay as a part of the gradient.

    m = m + (1 - b1) (g - m); v = b2 v + (1 - b2) g^2;
    p = p - lr / (1 - b1^t) * m / (sqrt(v) / sqrt(1 - b2^t) + eps), with the largest v so far where
    ``amsgrad`` is set. Slots: ``exp_avg``, ``exp_avg_sq`` and ``max_exp_avg_sq``. Raises
    UsageError for values out of range.
    """

    lr: float = 1e-3
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    weight_decay: float = 0.0
    amsgrad: bool = False

    def __post_init__(self) -> None:
        check_numbers(self, "lr", "eps", "weight_decay")
        check_fractions(self, "betas", self.betas, 2)

    def initial_slots(self, parameter: np.ndarray) -> dict[str, np.ndarray]:
        names = ["exp_avg", "exp_avg_sq"] + ["max_exp_avg_sq"] * self.amsgrad
        return {name: np.zeros_like(parameter) for name in names}

    def update(
        self, parameter: Expr, gradient: Expr, slots: Mapping[str, Expr], scalars: StepScalars
    ) -> Update:
        if self.weight_decay:
            gradient = gradient + scalar(self.weight_decay, dtype_of(parameter)) * parameter
        return self._moved(parameter, parameter, gradient, slots, scalars)

    def _moved(
        self,
        parameter: Expr,
        start: Expr,
        gradient: Expr,
        slots: Mapping[str, Expr],
        scalars: StepScalars,
    ) -> Update:
        """The step from ``start``, which is the parameter, perhaps decayed."""
        dtype, (b1, b2) = dtype_of(parameter), self.betas
        mean = slots["exp_avg"] + scalar(1 - b1, dtype) * (gradient - slots["exp_avg"])
        square = scalar(b2, dtype) * slots["exp_avg_sq"] + scalar(1 - b2, dtype) * (
            gradient * gradient
        )
        new = {"exp_avg": mean, "exp_avg_sq": square}
        largest = square
        if self.amsgrad:
            largest = new["max_exp_avg_sq"] = relay.maximum(slots["max_exp_avg_sq"], square)
        size = scalars.once("size", dtype, lambda: scalars.lr / _correction(b1, scalars))
        root = scalars.once("root", dtype, lambda: relay.sqrt(_correction(b2, scalars)))
        scale = relay.sqrt(largest) / root + scalar(self.eps, dtype)
        return Update(start - size * (mean / scale), new)


@dataclass(frozen=True)
class AdamW(Adam):
    """Adam with decoupled weight decay: p is first multiplied by 1 - lr * weight_decay."""

    weight_decay: float = 1e-2

    def update(
        self, parameter: Expr, gradient: Expr, slots: Mapping[str, Expr], scalars: StepScalars
    ) -> Update:
        start = parameter * decay_factor(scalars, self.weight_decay, dtype_of(parameter))
        return self._moved(parameter, start, gradient, slots, scalars)


def decay_factor(scalars: StepScalars, weight_decay: float, dtype: str) -> Expr:
    """1 - lr * weight_decay."""
    one, decay = scalar(1, "float64"), scalar(weight_decay, "float64")
    return scalars.once("decay", dtype, lambda: one - scalars.lr * decay)


def _correction(beta: float, scalars: StepScalars) -> Expr:
    return scalar(1, "float64") - relay.power(scalar(beta, "float64"), scalars.step)
