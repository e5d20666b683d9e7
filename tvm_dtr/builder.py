"""From an ONNX model to a compiled training program."""

from __future__ import annotations

import fnmatch
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
from tvm import relay

from .autodiff import cluster_elementwise, inline_composites
from .autodiff.scalars import scalar
from .control_flow import differentiate, lower_step
from .errors import ModelError, UsageError
from .frontend import ImportedModel, import_model
from .frontend.load import load_model
from .losses import Loss, make_loss
from .onnx_export import ModelSource, strip_weights
from .optim import (
    GRADIENT_NORM,
    LEARNING_RATE,
    Clipping,
    Optimizer,
    StepScalars,
    check_optimizer,
)
from .program_cache import cached_program
from .relay_graph import Expr, dtype_of, infer_function, post_order, stamp, tensor_type
from .relay_ops import use_own_kernels
from .training import Result, Shapes, TensorSpec, TrainingStep

if TYPE_CHECKING:
    from .compile.kernels import Progress
    from .program import Program

Model = str | os.PathLike[str] | onnx.ModelProto
OPTIMIZER_STEP = "optimizer_step"  # state of rules that count: how many steps there were


def make_training_step(
    model: Model,
    *,
    loss: str,
    optimizer: Optimizer | None = None,
    shapes: Shapes | None = None,
    dtype: str | None = None,
    freeze: Sequence[str] = (),
    clip_norm: float | None = None,
    clip_value: float | None = None,
) -> TrainingStep:
    """The training step of an ONNX model as one Relay function, not yet compiled.

    ``loss`` is one of :data:`tvm_dtr.losses.LOSSES`. Without an optimizer, the results hold
    ``grad:NAME`` for each parameter instead of updates. The learning rate is the input ``lr``
    (float64, a scalar), the optimizer's own where a step is given none. Parameters whose names
    match a pattern of ``freeze`` (``stem.*``) stay as they are, and nothing is computed for their
    gradients. ``clip_norm`` and ``clip_value`` clip gradients as PyTorch does; with the former the
    step also gives ``grad_norm``, the norm before clipping. ``dtype`` ("float32", ...) casts the
    model's floating-point tensors, which otherwise keep their types. Raises ModelError for a model
    that cannot be read or trained, UsageError for an unknown loss, optimizer, dtype or pattern.
    """
    check_optimizer(optimizer)
    clipping = Clipping(clip_norm, clip_value)
    proto = load_model(model)
    imported = import_model(proto, shapes, dtype)
    frozen = _matching(freeze, imported.parameter_names)
    value = make_loss(loss, imported.outputs)
    step = _StepBuilder(imported, value, optimizer, frozen, clipping).build()
    given = {
        name: tuple(n if isinstance(n, str) else int(n) for n in shape)
        for name, shape in (shapes or {}).items()
    }
    step.source = ModelSource(strip_weights(proto, step.initial_state), loss, given, dtype)
    return step


def build_evaluation(
    model: Model,
    *,
    target: Any = "llvm",
    shapes: Shapes | None = None,
    dtype: str | None = None,
    progress: Progress | None = None,
    jobs: int | None = None,
) -> Program:
    """Compile the model as it infers: its outputs from its inputs, nothing changes.

    Raises ModelError as :func:`make_training_step`.
    """

    def make() -> Program:
        from .compile import compile_step

        return compile_step(make_evaluation_step(model, shapes, dtype), target, progress, jobs)

    options = {"evaluation": True, "shapes": shapes, "dtype": dtype}
    return cached_program(model, options, target, make)


def make_evaluation_step(
    model: Model, shapes: Shapes | None = None, dtype: str | None = None
) -> TrainingStep:
    """The model in evaluation mode as a step without gradients, not yet compiled."""
    imported = import_model(model, shapes, dtype, training=False)
    names = [spec.name for spec in imported.inputs] + list(imported.state)
    outputs = inline_composites([expr for _, expr in imported.outputs])
    params = [imported.variables[name] for name in names]
    function = infer_function(relay.Function(params, relay.Tuple(outputs)))
    fields = use_own_kernels(list(function.body.fields))
    function = infer_function(relay.Function(function.params, relay.Tuple(fields)))
    state = function.params[len(imported.inputs) :]
    return TrainingStep(
        function=function,
        inputs=imported.inputs,
        state=[TensorSpec(n, *tensor_type(p)) for n, p in zip(imported.state, state, strict=True)],
        initial_state=imported.state,
        results=[Result(name, "output") for name, _ in imported.outputs],
        parameter_names=list(imported.parameter_names),
        sources=imported.sources,
    )


def build(
    model: Model,
    *,
    loss: str,
    optimizer: Optimizer | None = None,
    target: Any = "llvm",
    shapes: Shapes | None = None,
    dtype: str | None = None,
    freeze: Sequence[str] = (),
    clip_norm: float | None = None,
    clip_value: float | None = None,
    progress: Progress | None = None,
    jobs: int | None = None,
) -> Program:
    """Compile the training step of an ONNX model for a target.

    A program that was built before, with this package on this machine, comes from the cache.

    ``model`` is a path or a ModelProto; ``shapes`` gives the sizes of inputs with dynamic
    dimensions, by name. ``progress`` is called with (done, total, what is done), a total of 0
    meaning that it is not known; ``jobs`` is the most compiler processes at a time, by default one
    per CPU. The other arguments, and what is raised, are those of :func:`make_training_step`.
    """
    # All that a program depends on is in here: it is part of the key of the cache.
    options: dict[str, Any] = {
        "loss": loss,
        "optimizer": optimizer,
        "shapes": shapes,
        "dtype": dtype,
        "freeze": list(freeze) if not isinstance(freeze, str) else [freeze],
        "clip_norm": clip_norm,
        "clip_value": clip_value,
    }

    def make() -> Program:
        from .compile import compile_step

        step = make_training_step(model, **options)
        return compile_step(step, target, progress, jobs)

    return cached_program(model, options, target, make)


class _StepBuilder:
    """Collects the results of a step in the order in which they should run."""

    def __init__(
        self,
        model: ImportedModel,
        loss: Loss,
        optimizer: Optimizer | None,
        frozen: set[str],
        clipping: Clipping,
    ) -> None:
        self.model, self.loss, self.optimizer = model, loss, optimizer
        self.frozen, self.clipping = frozen, clipping
        self.inputs = list(model.inputs)
        self.variables = dict(model.variables)
        if loss.input is not None and loss.variable is not None:
            self._check_new_input(loss.input.name)
            self.inputs.append(loss.input)
            self.variables[loss.input.name] = loss.variable
        self.state = dict(model.state)
        self.results: list[tuple[Result, Expr]] = []

    def build(self) -> TrainingStep:
        value = self._typed_forward()
        self._add("loss", "output", value)
        for index, (name, expr) in enumerate(self.model.outputs):
            if name != "loss" or index or self.loss.input is not None:
                self._add(name, "output", expr)
        for name, expr in self.model.running_updates.items():
            self._add(name, "state", expr)
        trained = self._add_gradients(value)
        self._check_results()
        return self._finish(trained)

    def _check_results(self) -> None:
        """Each name means one output and one new state; ``loss`` is the loss alone."""
        names = [(result.name, result.kind) for result, _ in self.results]
        for name, kind in names:
            if names.count((name, kind)) > 1:
                raise ModelError(_clash(name, kind))
        if "loss" in self.variables:
            raise ModelError("the model has a tensor 'loss'; the step's loss needs that name")

    def _check_new_input(self, name: str) -> None:
        if name in self.variables:
            raise ModelError(
                f"the model has a tensor '{name}'; the loss needs that name, rename it"
            )

    def _add(self, name: str, kind: str, expr: Expr) -> None:
        self.results.append((Result(name, kind), expr))

    def _typed_forward(self) -> Expr:
        """Type all of the forward graph at once; rules read the types of inner calls too."""
        (loss,) = stamp([self.loss.value], [e for _, e in self.model.outputs], "loss")
        updates = self.model.running_updates
        fields = [loss, *(e for _, e in self.model.outputs), *updates.values()]
        names = list(self.variables)
        graph = self.model.control_flow.graph([self.variables[n] for n in names], fields)
        if not self.model.control_flow:
            fields = cluster_elementwise(graph.results)
            graph = self.model.control_flow.graph(graph.params, fields)
        self.variables = dict(zip(names, graph.params, strict=True))
        loss, *rest = graph.results
        count = len(self.model.outputs)
        self.model.outputs = [
            (n, e) for (n, _), e in zip(self.model.outputs, rest[:count], strict=True)
        ]
        self.model.running_updates = dict(zip(updates, rest[count:], strict=True))
        return loss

    def _add_gradients(self, loss: Expr) -> list[str]:
        """Updates or gradients, last layer first; returns the names that have a gradient."""
        names = self._backward_order(loss)
        wrt = [self.variables[n] for n in names]
        seed = scalar(1, dtype_of(loss))
        grads, self.sharing = differentiate(self.model.control_flow, [loss], [seed], wrt)
        found = {n: g for n, g in zip(names, grads, strict=True) if g is not None}
        if not found:
            frozen = f" ({len(self.frozen)} are frozen)" if self.frozen else ""
            raise ModelError(
                f"the loss depends on no parameter of the model{frozen}; nothing to train"
            )
        found = self._clipped(found)
        scalars = self._step_scalars() if self.optimizer is not None else None
        for name, grad in found.items():
            if self.optimizer is None or scalars is None:
                self._add(f"grad:{name}", "output", grad)
            else:
                self._add_update(name, grad, self.optimizer, scalars)
        return list(found)

    def _clipped(self, found: dict[str, Expr]) -> dict[str, Expr]:
        known = list(found.values())
        clipped = [self.clipping.by_value(g) for g in known]
        dtype = dtype_of(self.variables[next(iter(found))])
        scaling = self.clipping.scale(clipped, dtype)
        if scaling is not None:
            (scale, norm) = stamp(list(scaling), known, "gradient clipping")
            self._add(GRADIENT_NORM, "output", norm)
            clipped = [g * scale for g in clipped]
        return dict(zip(found, stamp(clipped, known, "gradient clipping"), strict=True))

    def _step_scalars(self) -> StepScalars:
        assert self.optimizer is not None
        self._check_new_input(LEARNING_RATE)
        rate = relay.var(LEARNING_RATE, shape=(), dtype="float64")
        self.inputs.append(TensorSpec(LEARNING_RATE, (), "float64", default=self.optimizer.lr))
        self.variables[LEARNING_RATE] = rate
        return StepScalars(rate, self._step_number)

    def _step_number(self) -> Expr:
        """The number of this step, from 1 on; the state that counts is made on first use."""
        if OPTIMIZER_STEP not in self.state:
            self._new_state(OPTIMIZER_STEP, np.zeros((), "float64"))
            one = relay.const(1.0, "float64")
            number = relay.add(self.variables[OPTIMIZER_STEP], one)
            (self.step_number,) = stamp([number], [], "number of the step")
            self._add(OPTIMIZER_STEP, "state", self.step_number)
        return self.step_number

    def _new_state(self, key: str, initial: np.ndarray) -> relay.Var:
        """A tensor that the optimizer carries from step to step."""
        if key in self.variables:
            raise ModelError(
                f"the model has a tensor '{key}'; the optimizer needs that name, rename it"
            )
        self.state[key] = initial
        self.variables[key] = relay.var(key, shape=initial.shape, dtype=str(initial.dtype))
        return self.variables[key]

    def _backward_order(self, loss: Expr) -> list[str]:
        """Parameters by their first use in the forward pass, latest first."""
        known = {self.variables[n]: n for n in self.model.parameter_names}
        used = [known[e] for e in post_order([loss]) if e in known]
        used = [name for name in used if name not in self.frozen]
        return used[::-1]

    def _add_update(
        self, name: str, grad: Expr, optimizer: Optimizer, scalars: StepScalars
    ) -> None:
        parameter = self.variables[name]
        slots = {
            slot: self._new_state(f"{slot}:{name}", initial)
            for slot, initial in optimizer.initial_slots(self.state[name]).items()
        }
        update = optimizer.update(parameter, grad, slots, scalars)
        new = [update.parameter, *update.slots.values()]
        new = stamp(new, [grad, parameter, *slots.values()], f"update of '{name}'")
        self._add(name, "state", new[0])
        for slot, expr in zip(update.slots, new[1:], strict=True):
            self._add(f"{slot}:{name}", "state", expr)

    def _finish(self, trained: list[str]) -> TrainingStep:
        fields = inline_composites(self.sharing([expr for _, expr in self.results]))
        names = [spec.name for spec in self.inputs] + list(self.state)
        control_flow = self.model.control_flow
        graph = control_flow.graph([self.variables[name] for name in names], fields)
        fields = use_own_kernels(graph.results)
        module = None
        if control_flow:
            module = lower_step(graph.params, fields, control_flow)
            function = module["main"]
        else:
            function = infer_function(relay.Function(graph.params, relay.Tuple(fields)))
        state = [
            TensorSpec(n, *tensor_type(p))
            for n, p in zip(self.state, graph.params[len(self.inputs) :], strict=True)
        ]
        return TrainingStep(
            function=function,
            module=module,
            inputs=self.inputs,
            state=state,
            initial_state=self.state,
            results=[result for result, _ in self.results],
            parameter_names=[n for n in self.model.parameter_names if n in set(trained)],
            sources=self.model.sources,
        )


def _matching(patterns: Sequence[str], names: list[str]) -> set[str]:
    """The names that match one of the patterns (``stem.*``), each of which must match some."""
    if isinstance(patterns, str):
        patterns = [patterns]
    matches: set[str] = set()
    for pattern in patterns:
        found = fnmatch.filter(names, pattern)
        if not found:
            shown = ", ".join(names[:8]) + (", ..." if len(names) > 8 else "")
            raise UsageError(f"freeze '{pattern}' matches no parameter; there are: {shown}")
        matches.update(found)
    return matches


def _clash(name: str, kind: str) -> str:
    if kind == "state":
        return (
            f"the model trains '{name}' and uses it as a running statistic; make them two tensors"
        )
    if name == "loss":
        return (
            "the model has an output 'loss' and the step's loss needs that name; rename it, "
            "or use loss 'output' if it is the loss and the model's first output"
        )
    if name.startswith("grad:"):
        return f"the model has an output '{name}'; the gradient needs that name, rename it"
    return f"the model has several outputs called '{name}'; give each its own name"
