"""From an ONNX model to a compiled training program."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import onnx
from tvm import relay

from .autodiff import inline_composites
from .autodiff.scalars import scalar
from .control_flow import differentiate, lower_step
from .errors import ModelError
from .frontend import ImportedModel, import_model
from .losses import Loss, make_loss
from .optim import Optimizer, check_optimizer
from .program_cache import cached_program
from .relay_graph import Expr, dtype_of, infer_function, post_order, stamp, tensor_type
from .relay_ops import use_own_kernels
from .training import Result, Shapes, TensorSpec, TrainingStep

if TYPE_CHECKING:
    from .compile.kernels import Progress
    from .program import Program

Model = str | os.PathLike[str] | onnx.ModelProto


def make_training_step(
    model: Model, *, loss: str, optimizer: Optimizer | None = None, shapes: Shapes | None = None
) -> TrainingStep:
    """The training step of an ONNX model as one Relay function, not yet compiled.

    ``loss`` is one of :data:`tvm_dtr.losses.LOSSES`. Without an optimizer, the results hold
    ``grad:NAME`` for each parameter instead of updates. Raises ModelError for a model that cannot
    be read or trained, UsageError for an unknown loss or optimizer.
    """
    check_optimizer(optimizer)
    imported = import_model(model, shapes)
    return _StepBuilder(imported, make_loss(loss, imported.outputs), optimizer).build()


def build(
    model: Model,
    *,
    loss: str,
    optimizer: Optimizer | None = None,
    target: Any = "llvm",
    shapes: Shapes | None = None,
    progress: Progress | None = None,
    jobs: int | None = None,
) -> Program:
    """Compile the training step of an ONNX model for a target.

    A program that was built before, with this package on this machine, comes from the cache.

    ``model`` is a path or a ModelProto; ``shapes`` gives the sizes of inputs with dynamic
    dimensions, by name. ``progress`` is called with (done, total, what is done), a total of 0
    meaning that it is not known; ``jobs`` is the most compiler processes at a time, by default one
    per CPU. Raises ModelError and UsageError as :func:`make_training_step`.
    """
    # All that a program depends on is in here: it is part of the key of the cache.
    options: dict[str, Any] = {"loss": loss, "optimizer": optimizer, "shapes": shapes}

    def make() -> Program:
        from .compile import compile_step

        step = make_training_step(model, **options)
        return compile_step(step, target, progress, jobs)

    return cached_program(model, options, target, make)


class _StepBuilder:
    """Collects the results of a step in the order in which they should run."""

    def __init__(self, model: ImportedModel, loss: Loss, optimizer: Optimizer | None) -> None:
        self.model, self.loss, self.optimizer = model, loss, optimizer
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
        trained = []
        for name, grad in zip(names, grads, strict=True):
            if grad is None:
                continue
            trained.append(name)
            if self.optimizer is None:
                self._add(f"grad:{name}", "output", grad)
            else:
                self._add_update(name, grad, self.optimizer)
        if not trained:
            raise ModelError("the loss depends on no parameter of the model; nothing to train")
        return trained

    def _backward_order(self, loss: Expr) -> list[str]:
        """Parameters by their first use in the forward pass, latest first."""
        known = {self.variables[n]: n for n in self.model.parameter_names}
        used = [known[e] for e in post_order([loss]) if e in known]
        return used[::-1]

    def _add_update(self, name: str, grad: Expr, optimizer: Optimizer) -> None:
        parameter = self.variables[name]
        slots = {}
        for slot, initial in optimizer.initial_slots(self.state[name]).items():
            key = f"{slot}:{name}"
            if key in self.variables:
                raise ModelError(
                    f"the model has a tensor '{key}'; the optimizer needs that name, rename it"
                )
            self.state[key] = initial
            variable = relay.var(key, shape=initial.shape, dtype=str(initial.dtype))
            self.variables[key] = slots[slot] = variable
        update = optimizer.update(parameter, grad, slots)
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
