"""Gradient clipping, as torch.nn.utils defines it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tvm import relay

from ..autodiff.scalars import scalar
from ..errors import UsageError
from ..relay_graph import Expr
from .optimizer import is_number

GRADIENT_NORM = "grad_norm"  # the step's output of this name, with ``clip_norm``


@dataclass(frozen=True)
class Clipping:
    """``norm``: the most that the 2-norm of all gradients together may be; ``value``: the most
    that any element may be. Elements are clipped first.

    The norm depends on every gradient, so none can be used and freed before the last is there.
    """

    norm: float | None = None
    value: float | None = None

    def __post_init__(self) -> None:
        for name in ("norm", "value"):
            given = getattr(self, name)
            if given is not None and (not is_number(given) or given <= 0):
                raise UsageError(f"clip_{name} must be a finite number > 0, got {given!r}")

    def by_value(self, gradient: Expr) -> Expr:
        if self.value is None:
            return gradient
        return relay.clip(gradient, -float(self.value), float(self.value))

    def scale(self, gradients: Sequence[Expr], dtype: str) -> tuple[Expr, Expr] | None:
        """What to multiply each gradient by, and the norm before; None without ``norm``."""
        if self.norm is None:
            return None
        squares = [relay.sum(gradient * gradient) for gradient in gradients]
        total = squares[0]
        for square in squares[1:]:
            total = total + square
        norm = relay.sqrt(total)
        share = scalar(self.norm, dtype) / (norm + scalar(1e-6, dtype))
        return relay.minimum(share, scalar(1, dtype)), norm
