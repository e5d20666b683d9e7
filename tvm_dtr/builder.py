"""From an ONNX model to a compiled training program."""

from __future__ import annotations

import fnmatch
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import onnx
from tvm import relay

from .autodiff import cluster_elementwise, inline_composites
from .control_flow import differentiate, lower_step
from .errors import ModelError, UsageError
from .frontend import ImportedModel, import_model
from .frontend.load import load_model
from .interrupts import interruptible
from .losses import Loss, make_loss
from .mixed_precision import make_gating, repeat_casts, use_mixed_precision
from .onnx_export import ModelSource, strip_weights
from .optim import Clipping, Optimizer, check_optimizer
from .program_cache import cached_program
from .progress import Progress
from .relay_facts import remembering
from .relay_graph import Expr, dtype_of, infer_function, post_order, stamp, tensor_type
from .relay_ops import use_own_kernels
from .step_updates import ParameterUpdates, StepTensors
from .symbolic import at_sizes, names_to_build_for, open_names, symbolic_program
from .training import Result, Shapes, TensorSpec, TrainingStep

if TYPE_CHECKING:
    from .program import Program

Model = str | os.PathLike[str] | onnx.ModelProto


@remembering()
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
    accumulate: int = 1,
    mixed_precision: str | None = None,
    loss_scale: float | str | None = None,
    return_gradients: bool = False,
    progress: Progress | None = None,
) -> TrainingStep:
    """The training step of an ONNX model as one Relay function, not yet compiled.

    ``loss`` is one of :data:`tvm_dtr.losses.LOSSES`. Without an optimizer, the results hold
    ``grad:NAME`` for each parameter instead of updates. The learning rate is the input ``lr``
    (float64, a scalar), the optimizer's own where a step is given none. Parameters whose names
    match a pattern of ``freeze`` (``stem.*``) stay as they are, and nothing is computed for their
    gradients. ``clip_norm`` and ``clip_value`` clip gradients as PyTorch does; with the former the
    step also gives ``grad_norm``, the norm before clipping. ``dtype`` ("float32", ...) casts the
    model's floating-point tensors, which otherwise keep their types. With ``accumulate`` every
    so-manieth step updates, by the mean of the gradients since the last update.
    ``mixed_precision`` ("float16", "bfloat16") is for operands and results of matrix products and
    convolutions, see tvm_dtr.mixed_precision; ``loss_scale`` is a number or "dynamic", the default
    for float16. With ``return_gradients`` the step gives ``grad:NAME`` beside the updates, so all
    gradients are in memory at its end. ``progress`` is called as by :func:`build`. Raises
    ModelError for a model that cannot be read or trained, UsageError for an unknown loss,
    optimizer, dtype or pattern, or numbers out of range.
    """
    check_optimizer(optimizer)
    clipping = Clipping(clip_norm, clip_value)
    gating = make_gating(optimizer, accumulate, mixed_precision, loss_scale)
    proto = load_model(model)
    imported = import_model(proto, shapes, dtype, progress=progress)
    frozen = _matching(freeze, imported.parameter_names)
    if mixed_precision is not None:
        use_mixed_precision(imported, mixed_precision)
    value = make_loss(loss, imported.outputs)
    builder = _StepBuilder(imported, value, frozen, mixed_precision is not None, progress)
    step = builder.build(
        ParameterUpdates(builder.tensors, optimizer, clipping, gating, return_gradients)
    )
    step.accumulate = accumulate
    given = {
        name: tuple(n if isinstance(n, str) else int(n) for n in shape)
        for name, shape in (shapes or {}).items()
    }
    step.source = ModelSource(strip_weights(proto, step.initial_state), loss, given, dtype)
    return step


@interruptible()
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


@remembering()
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


@interruptible()
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
    accumulate: int = 1,
    mixed_precision: str | None = None,
    loss_scale: float | str | None = None,
    return_gradients: bool = False,
    progress: Progress | None = None,
    jobs: int | None = None,
) -> Program:
    """Compile the training step of an ONNX model for a target.

    A program that was built before, with this package on this machine, comes from the cache.

    ``model`` is a path or a ModelProto; ``shapes`` gives the sizes of inputs with dynamic
    dimensions, by name. A name for a size (``{"x": ("N", 3, 32, 32)}``) is one that changes from
    step to step, see docs/control-flow.md. ``progress`` is called with (done, total, what is done),
    a total of 0 meaning that it is not known; ``jobs`` is the most compiler processes at a time, by
    default one per CPU. The other arguments, and what is raised, are those of
    :func:`make_training_step`.
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
        "accumulate": accumulate,
        "mixed_precision": mixed_precision,
        "loss_scale": loss_scale,
        "return_gradients": return_gradients,
    }

    def make(model: Model, options: dict[str, Any]) -> Program:
        from .compile import compile_step

        def made() -> Program:
            step = make_training_step(model, **options, progress=progress)
            return compile_step(step, target, progress, jobs)

        return cached_program(model, options, target, made)

    if not open_names(shapes):
        return make(model, options)
    proto = load_model(model)

    def make_step(sized: Shapes) -> TrainingStep:
        return make_training_step(proto, **{**options, "shapes": sized})

    names = names_to_build_for(proto, shapes, make_step)
    if not names:
        return make(model, options)

    def make_at(sizes: dict[str, int]) -> Program:
        return make(proto, {**options, "shapes": at_sizes(shapes or {}, sizes)})

    return symbolic_program(proto, options, target, names, make_step, make_at)


class _StepBuilder:
    """Collects the results of a step in the order in which they should run."""

    def __init__(
        self,
        model: ImportedModel,
        loss: Loss,
        frozen: set[str],
        mixed: bool,
        progress: Progress | None,
    ) -> None:
        self.model, self.loss, self.frozen = model, loss, frozen
        self.mixed, self.progress = mixed, progress
        self.tensors = StepTensors(list(model.inputs), dict(model.state), dict(model.variables))
        if loss.input is not None and loss.variable is not None:
            self.tensors.new_input(loss.input, loss.variable, "loss")

    def build(self, updates: ParameterUpdates) -> TrainingStep:
        value = self._typed_forward()
        self.tensors.add("loss", "output", value)
        for index, (name, expr) in enumerate(self.model.outputs):
            if name != "loss" or index or self.loss.input is not None:
                self.tensors.add(name, "output", expr)
        for name, expr in self.model.running_updates.items():
            self.tensors.add(name, "state", expr)
        gradients = self._gradients(value, updates.gate.seed(dtype_of(value)))
        updates.add(gradients)
        self._check_results()
        return self._finish(list(gradients))

    def _check_results(self) -> None:
        """Each name means one output and one new state; ``loss`` is the loss alone."""
        names = [(result.name, result.kind) for result, _ in self.tensors.results]
        for name, kind in names:
            if names.count((name, kind)) > 1:
                raise ModelError(_clash(name, kind))
        if "loss" in self.tensors.variables:
            raise ModelError("the model has a tensor 'loss'; the step's loss needs that name")

    def _typed_forward(self) -> Expr:
        """Type all of the forward graph at once; rules read the types of inner calls too."""
        (loss,) = stamp([self.loss.value], [e for _, e in self.model.outputs], "loss")
        updates = self.model.running_updates
        fields = [loss, *(e for _, e in self.model.outputs), *updates.values()]
        names = list(self.tensors.variables)
        graph = self.model.control_flow.graph([self.tensors.variables[n] for n in names], fields)
        if not self.model.control_flow:
            fields = cluster_elementwise(graph.results)
            graph = self.model.control_flow.graph(graph.params, fields)
        self.tensors.variables = dict(zip(names, graph.params, strict=True))
        loss, *rest = graph.results
        count = len(self.model.outputs)
        self.model.outputs = [
            (n, e) for (n, _), e in zip(self.model.outputs, rest[:count], strict=True)
        ]
        self.model.running_updates = dict(zip(updates, rest[count:], strict=True))
        return loss

    def _gradients(self, loss: Expr, seed: Expr) -> dict[str, Expr]:
        """By name, last layer first."""
        names = self._backward_order(loss)
        wrt = [self.tensors.variables[n] for n in names]
        grads, self.sharing = differentiate(
            self.model.control_flow, [loss], [seed], wrt, self.progress
        )
        found = {n: g for n, g in zip(names, grads, strict=True) if g is not None}
        if not found:
            frozen = f" ({len(self.frozen)} are frozen)" if self.frozen else ""
            raise ModelError(
                f"the loss depends on no parameter of the model{frozen}; nothing to train"
            )
        return found

    def _backward_order(self, loss: Expr) -> list[str]:
        """Parameters by their first use in the forward pass, latest first."""
        known = {self.tensors.variables[n]: n for n in self.model.parameter_names}
        used = [known[e] for e in post_order([loss]) if e in known]
        used = [name for name in used if name not in self.frozen]
        return used[::-1]

    def _finish(self, trained: list[str]) -> TrainingStep:
        fields = inline_composites(self.sharing([expr for _, expr in self.tensors.results]))
        if self.mixed:
            fields = repeat_casts(fields)
        names = [spec.name for spec in self.tensors.inputs] + list(self.tensors.state)
        control_flow = self.model.control_flow
        graph = control_flow.graph([self.tensors.variables[name] for name in names], fields)
        fields = use_own_kernels(graph.results)
        module = None
        if control_flow:
            module = lower_step(graph.params, fields, control_flow)
            function = module["main"]
        else:
            function = infer_function(relay.Function(graph.params, relay.Tuple(fields)))
        state = [
            TensorSpec(n, *tensor_type(p))
            for n, p in zip(
                self.tensors.state, graph.params[len(self.tensors.inputs) :], strict=True
            )
        ]
        return TrainingStep(
            function=function,
            module=module,
            inputs=self.tensors.inputs,
            state=state,
            initial_state=self.tensors.state,
            results=[result for result, _ in self.tensors.results],
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
