"""The part of a training step behind the gradients: accumulation, clipping, optimizer, state."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from tvm import relay

from .errors import ModelError
from .optim import GRADIENT_NORM, LEARNING_RATE, Clipping, Optimizer, StepScalars
from .optim.accumulation import Gating, UpdateGate
from .relay_graph import Expr, dtype_of, stamp
from .training import Result, TensorSpec

OPTIMIZER_STEP = "optimizer_step"  # state of rules that count: how many updates there were


@dataclass
class StepTensors:
    """Inputs, state and results of a step that is being built, in order."""

    inputs: list[TensorSpec]
    state: dict[str, np.ndarray]
    variables: dict[str, relay.Var]
    results: list[tuple[Result, Expr]] = field(default_factory=list)

    def add(self, name: str, kind: str, expr: Expr) -> None:
        self.results.append((Result(name, kind), expr))

    def new_input(self, spec: TensorSpec, variable: relay.Var, needs_it: str) -> None:
        self._check_new(spec.name, needs_it)
        self.inputs.append(spec)
        self.variables[spec.name] = variable

    def new_state(self, key: str, initial: np.ndarray) -> relay.Var:
        """A tensor that the optimizer carries from step to step."""
        self._check_new(key, "optimizer")
        self.state[key] = initial
        variable = relay.var(key, shape=initial.shape, dtype=str(initial.dtype))
        self.variables[key] = variable
        return variable

    def _check_new(self, name: str, needs_it: str) -> None:
        if name in self.variables:
            raise ModelError(
                f"the model has a tensor '{name}'; the {needs_it} needs that name, rename it"
            )


class ParameterUpdates:
    """Turns the gradients of a step into results: updates, or the gradients themselves."""

    def __init__(
        self,
        tensors: StepTensors,
        optimizer: Optimizer | None,
        clipping: Clipping,
        gating: Gating,
        return_gradients: bool = False,
    ) -> None:
        self.tensors, self.optimizer, self.clipping = tensors, optimizer, clipping
        self.gating, self.return_gradients = gating, return_gradients
        self._number: Expr | None = None

    @cached_property
    def gate(self) -> UpdateGate:
        """Made on first use: when the forward graph is typed, and has new variables."""
        return UpdateGate(self.gating, self.tensors)

    def add(self, gradients: Mapping[str, Expr]) -> None:
        """In the order of ``gradients``: the last layer's first."""
        found = self._clipped(self.gate.gathered(gradients))
        if self.optimizer is None or self.return_gradients:
            for name, gradient in found.items():
                self.tensors.add(f"grad:{name}", "output", gradient)
        if self.optimizer is None:
            return
        scalars = self._scalars(self.optimizer)
        for name, gradient in found.items():
            self._add_update(name, gradient, self.optimizer, scalars)

    def _clipped(self, found: dict[str, Expr]) -> dict[str, Expr]:
        known = list(found.values())
        clipped = [self.clipping.by_value(g) for g in known]
        dtype = dtype_of(self.tensors.variables[next(iter(found))])
        scaling = self.clipping.scale(clipped, dtype)
        if scaling is not None:
            (scale, norm) = stamp(list(scaling), known, "gradient clipping")
            self.tensors.add(GRADIENT_NORM, "output", norm)
            clipped = [g * scale for g in clipped]
        return dict(zip(found, stamp(clipped, known, "gradient clipping"), strict=True))

    def _scalars(self, optimizer: Optimizer) -> StepScalars:
        rate = relay.var(LEARNING_RATE, shape=(), dtype="float64")
        spec = TensorSpec(LEARNING_RATE, (), "float64", default=optimizer.lr)
        self.tensors.new_input(spec, rate, "loss")
        return StepScalars(rate, self._update_number)

    def _update_number(self) -> Expr:
        """The number of this update, from 1 on; the state that counts is made on first use."""
        if self._number is None:
            before = self.tensors.new_state(OPTIMIZER_STEP, np.zeros((), "float64"))
            number = relay.add(before, relay.const(1.0, "float64"))
            (self._number,) = stamp([number], [], "number of the step")
            kept = self.gate.kept(self._number, before)
            known = [self._number, before, *([a] if (a := self.gate.applies) is not None else [])]
            (kept,) = stamp([kept], known, "number of the step")
            self.tensors.add(OPTIMIZER_STEP, "state", kept)
        return self._number

    def _add_update(
        self, name: str, gradient: Expr, optimizer: Optimizer, scalars: StepScalars
    ) -> None:
        tensors = self.tensors
        parameter = tensors.variables[name]
        slots = {
            slot: tensors.new_state(f"{slot}:{name}", initial)
            for slot, initial in optimizer.initial_slots(tensors.state[name]).items()
        }
        update = optimizer.update(parameter, gradient, slots, scalars)
        update = self.gate.gated(slots, parameter, update)
        new = [update.parameter, *update.slots.values()]
        gate = [] if self.gate.applies is None else [self.gate.applies]
        new = stamp(new, [gradient, parameter, *slots.values(), *gate], f"update of '{name}'")
        tensors.add(name, "state", new[0])
        for slot, expr in zip(update.slots, new[1:], strict=True):
            tensors.add(f"{slot}:{name}", "state", expr)
