"""Learning rates over the steps of a run: PyTorch's schedulers, in closed form.

A schedule is a function of the step's index, from 0 on, to the learning rate of that step: it
carries no state, so a resumed run goes on with the rates of the uninterrupted one. Each equals
the scheduler it is named after when that one is advanced once after each step.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from .errors import UsageError

Schedule = Callable[[int], float]


@dataclass(frozen=True)
class Constant:
    """The same rate at each step."""

    lr: float

    def __call__(self, step: int) -> float:
        return self.lr


@dataclass(frozen=True)
class StepDecay:
    """``torch.optim.lr_scheduler.StepLR``: times ``gamma`` every ``every`` steps."""

    lr: float
    every: int
    gamma: float = 0.1

    def __post_init__(self) -> None:
        _positive(self, "every")

    def __call__(self, step: int) -> float:
        return self.lr * self.gamma ** (step // self.every)


@dataclass(frozen=True)
class Cosine:
    """``CosineAnnealingLR``: half a cosine from ``lr`` down to ``least`` over ``steps`` steps.

    (SGDR, Loshchilov and Hutter, ICLR 2017.) It stays at ``least`` afterwards, where PyTorch's
    would rise again.
    """

    lr: float
    steps: int
    least: float = 0.0

    def __post_init__(self) -> None:
        _positive(self, "steps")

    def __call__(self, step: int) -> float:
        done = min(step / self.steps, 1.0)
        return self.least + (self.lr - self.least) * (1 + math.cos(math.pi * done)) / 2


@dataclass(frozen=True)
class WarmUp:
    """``LinearLR``, then another schedule, as ``SequentialLR`` chains them.

    Over ``steps`` steps the rate rises linearly from ``start`` times the first rate of ``then`` to
    that rate; after that, ``then`` starts with its step 0.
    """

    then: Schedule
    steps: int
    start: float = 1 / 3

    def __post_init__(self) -> None:
        _positive(self, "steps")

    def __call__(self, step: int) -> float:
        if step >= self.steps:
            return self.then(step - self.steps)
        return self.then(0) * (self.start + (1 - self.start) * step / self.steps)


@dataclass(frozen=True)
class OneCycle:
    """``OneCycleLR`` (Smith and Topin, 2019) with cosine annealing, two phases, its defaults.

    From ``peak / div_factor`` up to ``peak`` over ``pct_start`` of the ``steps``, then down to
    ``peak / div_factor / final_div_factor``. Momentum is not cycled.
    """

    peak: float
    steps: int
    pct_start: float = 0.3
    div_factor: float = 25.0
    final_div_factor: float = 1e4

    def __post_init__(self) -> None:
        _positive(self, "steps")
        if not 0 <= self.pct_start <= 1:
            raise UsageError(f"OneCycle: pct_start must be from 0 to 1, got {self.pct_start!r}")

    def __call__(self, step: int) -> float:
        first = self.peak / self.div_factor
        top, end = self.pct_start * self.steps - 1, self.steps - 1
        step = min(step, end)
        if step <= top:
            return _between(first, self.peak, step / top if top else 1.0)
        share = (step - top) / (end - top) if end > top else 1.0
        return _between(self.peak, first / self.final_div_factor, share)


def _between(start: float, end: float, share: float) -> float:
    return end + (start - end) * (1 + math.cos(math.pi * share)) / 2


def _positive(schedule: Any, name: str) -> None:
    value = getattr(schedule, name)
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise UsageError(
            f"{type(schedule).__name__}: {name} must be a whole number of 1 or more, got {value!r}"
        )


SCHEDULES = ("constant", "step", "cosine", "one-cycle")


def make_schedule(
    name: str, lr: float, steps: int, *, warm_up: int = 0, every: int = 0, gamma: float = 0.1
) -> Schedule:
    """The schedule called ``name`` for a run of ``steps`` steps, after ``warm_up`` steps.

    ``every`` and ``gamma`` are those of ``step`` (``every`` by default a third of the run). Raises
    UsageError for an unknown name or where the warm-up leaves no step.
    """
    if name not in SCHEDULES:
        raise UsageError(f"unknown schedule {name!r}; the schedules are {', '.join(SCHEDULES)}")
    rest = steps - warm_up
    if warm_up < 0 or rest < 1:
        raise UsageError(f"a warm-up of {warm_up} steps leaves none of {steps} for training")
    made: dict[str, Callable[[], Schedule]] = {
        "constant": lambda: Constant(lr),
        "step": lambda: StepDecay(lr, every or max(rest // 3, 1), gamma),
        "cosine": lambda: Cosine(lr, rest),
        "one-cycle": lambda: OneCycle(lr, rest),
    }
    then = made[name]()
    return WarmUp(then, warm_up) if warm_up else then
