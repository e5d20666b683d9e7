"""What an optimizer is to the compiler."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from numbers import Real
from typing import Protocol, runtime_checkable

import numpy as np
from tvm import relay

from ..errors import UsageError
from ..relay_graph import Expr, stamp

LEARNING_RATE = "lr"  # the step's input of this name


@dataclass
class Update:
    """New values of one parameter and of its optimizer state (by slot)."""

    parameter: Expr
    slots: dict[str, Expr] = field(default_factory=dict)


class StepScalars:
    """What all parameters of a step share: the learning rate and the number of the step.

    Both are float64 scalars, so that bias corrections such as ``1 - 0.999 ** step`` keep their
    digits. The number is asked for on demand: rules without it carry no counter. What a rule
    computes of them alone it makes by ``once``, and the step computes it once.
    """

    def __init__(self, lr: Expr, step: Callable[[], Expr]) -> None:
        self.lr = lr
        self._step = step
        self._made: dict[tuple[str, str], Expr] = {}

    @property
    def step(self) -> Expr:
        """1 in the first step, then 2, ..."""
        return self._step()

    def once(self, name: str, dtype: str, make: Callable[[], Expr]) -> Expr:
        """``make()`` as ``dtype``, the same expression at each call with this name."""
        if (name, dtype) not in self._made:
            number = make()
            if dtype == "float16":  # the compiler's conversion from float64 gives other numbers
                number = relay.cast(number, "float32")
            # Fused into an elementwise kernel it would be computed for each element.
            value = relay.annotation.stop_fusion(relay.cast(number, dtype))
            # With a span already, so that stamping the updates leaves it one expression.
            (self._made[name, dtype],) = stamp([value], [], f"optimizer's {name}")
        return self._made[name, dtype]

    def rate(self, dtype: str) -> Expr:
        """The learning rate as ``dtype``."""
        return self.once("lr", dtype, lambda: self.lr)


@runtime_checkable
class Optimizer(Protocol):
    """An update rule. Slots are tensors that the rule carries per parameter, such as momentum.

    ``lr`` is the learning rate of steps that are given none.
    """

    @property
    def lr(self) -> float: ...

    def initial_slots(self, parameter: np.ndarray) -> dict[str, np.ndarray]:
        """The slots' values before the first step."""
        ...

    def update(
        self,
        parameter: Expr,
        gradient: Expr,
        slots: Mapping[str, Expr],
        scalars: StepScalars,
    ) -> Update:
        """The rule; operands are expressions of the parameter's dtype, which is typed."""
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


def is_number(value: object) -> bool:
    """A real number that float32 can hold; comparing, unlike float(), takes any size of int."""
    most = float(np.finfo("float32").max)
    if isinstance(value, bool) or not isinstance(value, Real):
        return False
    return bool(-most <= value <= most)  # type: ignore[operator]  # Real lacks the reflected one


def check_numbers(optimizer: object, *names: str) -> None:
    """Raise UsageError unless the attributes are finite float32 numbers of 0 or more."""
    for name in names:
        value = getattr(optimizer, name)
        if not is_number(value) or value < 0:
            raise UsageError(
                f"{type(optimizer).__name__}: {name} must be a finite float32 number >= 0, "
                f"got {value!r}"
            )


def check_fractions(optimizer: object, name: str, values: object, count: int) -> None:
    """Raise UsageError unless ``values`` are ``count`` numbers from 0 to below 1."""
    given = values if isinstance(values, tuple | list) else (values,)
    if len(given) != count or not all(is_number(v) and 0 <= v < 1 for v in given):
        wanted = "a number" if count == 1 else f"{count} numbers"
        raise UsageError(
            f"{type(optimizer).__name__}: {name} must be {wanted} from 0 to below 1, got {values!r}"
        )
