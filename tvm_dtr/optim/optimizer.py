"""What an optimizer is to the compiler."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

import numpy as np

from ..errors import UsageError
from ..relay_graph import Expr


@dataclass
class Update:
    """New values of one parameter and of its optimizer state (by slot)."""

    parameter: Expr
    slots: dict[str, Expr] = field(default_factory=dict)


@runtime_checkable
class Optimizer(Protocol):
    """An update rule. Slots are tensors that the rule carries per parameter, such as momentum."""

    def initial_slots(self, parameter: np.ndarray) -> dict[str, np.ndarray]:
        """The slots' values before the first step."""
        ...

    def update(self, parameter: Expr, gradient: Expr, slots: Mapping[str, Expr]) -> Update:
        """The rule; operands are typed expressions of the parameter's dtype."""
        ...


def check_optimizer(optimizer: object) -> None:
    """Raise UsageError unless ``optimizer`` is None or an optimizer object."""
    if isinstance(optimizer, type):
        name = optimizer.__name__
        raise UsageError(f"optimizer is the class {name}, expected an object of it: {name}(lr=0.1)")
    if optimizer is not None and not isinstance(optimizer, Optimizer):
        raise UsageError(
            f"unknown optimizer {optimizer!r}; expected tvm_dtr.SGD(lr=0.1) or None (gradients)"
        )
