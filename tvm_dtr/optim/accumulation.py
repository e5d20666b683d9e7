"""Whether a step updates: gradient accumulation and loss scaling decide, on the device."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from tvm import relay

from ..autodiff.scalars import scalar, select
from ..errors import UsageError
from ..relay_graph import Expr, stamp, substitute
from .optimizer import Update, is_number

ACCUMULATED = "accumulated"  # state: micro-batches since the last update
LOSS_SCALE = "loss_scale"  # state: what the loss is multiplied by
GOOD_UPDATES = "good_updates"  # state: updates since the loss scale changed
DYNAMIC = "dynamic"

# As torch.amp.GradScaler.
FIRST_SCALE, GROWTH, BACKOFF, GROWTH_INTERVAL = 2.0**16, 2.0, 0.5, 2000.0
LARGEST_SCALE = 2.0**24


class State(Protocol):
    """What makes the state of a step."""

    state: dict[str, np.ndarray]

    def new_state(self, key: str, initial: np.ndarray) -> relay.Var: ...

    def add(self, name: str, kind: str, expr: Expr) -> None: ...


@dataclass(frozen=True)
class Gating:
    """``accumulate``: micro-batches per update, whose gradients are averaged. ``loss_scale``: None,
    a number, or "dynamic" (starts at 65536, halves where a gradient is not finite, and the update
    is left out; doubles after 2000 updates without)."""

    accumulate: int = 1
    loss_scale: float | str | None = None

    def __post_init__(self) -> None:
        count, scale = self.accumulate, self.loss_scale
        if isinstance(count, bool) or not isinstance(count, int) or count < 1:
            raise UsageError(f"accumulate {count!r}: expected a whole number of 1 or more")
        number = is_number(scale) and scale > 0  # type: ignore[operator]  # a number
        if scale is not None and scale != DYNAMIC and not number:
            raise UsageError(f"loss_scale {scale!r}: expected 'dynamic', a number > 0, or None")

    @property
    def dynamic(self) -> bool:
        return self.loss_scale == DYNAMIC


class UpdateGate:
    """The accumulated gradients of a step, and whether they are applied in it.

    Without accumulation and dynamic scaling all expressions are left as they are. Else each
    update is computed in every step and chosen elementwise, so that a step is one straight line
    whatever happens, and a checkpoint between two updates holds all there is.
    """

    def __init__(self, gating: Gating, state: State) -> None:
        self.gating, self.state = gating, state
        self.applies: Expr | None = None
        self._last: Expr | None = None  # whether this micro-batch is the last of its update
        self._first: Expr | None = None
        self._scale: Expr | None = None
        if gating.dynamic:
            self._scale = state.new_state(LOSS_SCALE, np.array(FIRST_SCALE, "float32"))
        elif gating.loss_scale is not None:
            self._scale = scalar(float(gating.loss_scale), "float32")
        if gating.accumulate > 1:
            self._count()

    def seed(self, dtype: str) -> Expr:
        """What the backward pass starts from: the loss scale."""
        if self._scale is None:
            return scalar(1, dtype)
        return stamp([_in_type(self._scale, dtype)], [self._scale], "loss scale")[0]

    def gathered(self, gradients: Mapping[str, Expr]) -> dict[str, Expr]:
        """Means over the micro-batches so far, unscaled; decides whether they are applied."""
        found = self._unscaled(gradients)
        if self._first is not None:
            found = {name: self._accumulated(name, grad) for name, grad in found.items()}
        self._decide(found)
        return found

    def gated(self, old: Mapping[str, Expr], parameter: Expr, update: Update) -> Update:
        """The update where it applies; else the old values stay."""
        if self.applies is None:
            return update
        table: dict[Expr, Expr] = {}
        slots: dict[str, Expr] = {}
        for slot, expr in update.slots.items():
            (new,) = substitute([expr], table)
            slots[slot] = table[expr] = self.kept(new, old[slot])
        # By the slots as they are kept: the same where the update applies.
        (moved,) = substitute([update.parameter], table)
        return Update(self.kept(moved, parameter), slots)

    def kept(self, new: Expr, old: Expr) -> Expr:
        """``new`` in a step that updates, else ``old``."""
        return new if self.applies is None else relay.where(self.applies, new, old)

    def _count(self) -> None:
        before = self.state.new_state(ACCUMULATED, np.zeros((), "float64"))
        zero, one = scalar(0, "float64"), scalar(1, "float64")
        number = before + one
        last = relay.greater_equal(number, scalar(self.gating.accumulate, "float64"))
        after = relay.where(last, zero, number)
        flags = [relay.annotation.stop_fusion(last), relay.equal(before, zero), after]
        self._last, first, after = stamp(flags, [before], "gradient accumulation")
        self._first = stamp([relay.annotation.stop_fusion(first)], [first], "accumulation")[0]
        self.state.add(ACCUMULATED, "state", after)

    def _unscaled(self, gradients: Mapping[str, Expr]) -> dict[str, Expr]:
        if self._scale is None:
            return dict(gradients)
        share = scalar(1, "float32") / self._scale
        (share,) = stamp([relay.annotation.stop_fusion(share)], [self._scale], "loss scale")
        known = list(gradients.values())
        found = [g * _in_type(share, self._dtype(name)) for name, g in gradients.items()]
        return dict(zip(gradients, stamp(found, [*known, share], "unscaling"), strict=True))

    def _accumulated(self, name: str, gradient: Expr) -> Expr:
        dtype, key = self._dtype(name), f"grad_sum:{name}"
        before = self.state.new_state(key, np.zeros_like(self.state.state[name]))
        total = relay.where(self._first, gradient, before + gradient)
        known = [gradient, before, self._first]
        (total,) = stamp([total], known, f"sum of the gradients of '{name}'")
        self.state.add(key, "state", total)
        mean = total * scalar(1 / self.gating.accumulate, dtype)
        return stamp([mean], [total], f"mean gradient of '{name}'")[0]

    def _dtype(self, name: str) -> str:
        """Of a parameter and its gradient."""
        return str(self.state.state[name].dtype)

    def _decide(self, gradients: Mapping[str, Expr]) -> None:
        self.applies = self._last
        if not self.gating.dynamic:
            return
        bad = scalar(0, "float32")
        for name, gradient in gradients.items():
            bad = bad + _not_finite(gradient, self._dtype(name))
        finite = relay.equal(bad, scalar(0, "float32"))
        known = [*gradients.values(), *([] if self._last is None else [self._last])]
        applies = finite if self._last is None else relay.logical_and(finite, self._last)
        finite, applies = stamp(
            [relay.annotation.stop_fusion(finite), relay.annotation.stop_fusion(applies)],
            known,
            "loss scaling",
        )
        self.applies = applies
        self._rescale(finite)

    def _rescale(self, finite: Expr) -> None:
        assert self._scale is not None
        good = self.state.new_state(GOOD_UPDATES, np.zeros((), "float32"))
        zero, one = scalar(0, "float32"), scalar(1, "float32")
        more = good + one
        grows = relay.greater_equal(more, scalar(GROWTH_INTERVAL, "float32"))
        larger = relay.minimum(self._scale * scalar(GROWTH, "float32"), _f32(LARGEST_SCALE))
        scale = relay.where(grows, larger, self._scale)
        scale = relay.where(finite, scale, self._scale * scalar(BACKOFF, "float32"))
        count = relay.where(finite, relay.where(grows, zero, more), zero)
        if self._last is not None:
            scale = relay.where(self._last, scale, self._scale)
            count = relay.where(self._last, count, good)
        known = [self._scale, good, finite, *([] if self._last is None else [self._last])]
        scale, count = stamp([scale, count], known, "loss scaling")
        self.state.add(LOSS_SCALE, "state", scale)
        self.state.add(GOOD_UPDATES, "state", count)


def _f32(value: float) -> Expr:
    return scalar(value, "float32")


def _in_type(expr: Expr, dtype: str) -> Expr:
    """A float32 scalar in the type of a gradient."""
    return expr if dtype == "float32" else relay.cast(expr, dtype)


def _not_finite(gradient: Expr, dtype: str) -> Expr:
    """How many elements are infinite or NaN, for which no comparison holds."""
    most = scalar(float(np.finfo(dtype).max), dtype)
    finite = relay.less_equal(relay.abs(gradient), most)
    return relay.sum(select(relay.logical_not(finite), _f32(1.0), "float32"))
