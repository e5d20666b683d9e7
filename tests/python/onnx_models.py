"""Small ONNX models for tests, and steps run on TVM's graph executor."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field

os.environ.setdefault("TOPHUB_LOCATION", "NONE")

import numpy as np
import onnx
import tvm
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator
from tvm import relay
from tvm.contrib import graph_executor

from tvm_dtr.builder import make_training_step
from tvm_dtr.step_inputs import with_defaults
from tvm_dtr.training import TrainingStep


@dataclass
class ModelMaker:
    """Collects nodes and initializers of one model."""

    opset: int = 17
    dtype: str = "float32"
    nodes: list = field(default_factory=list)
    weights: dict = field(default_factory=dict)
    inputs: list = field(default_factory=list)

    def input(self, name: str, shape: Sequence, dtype: str | None = None) -> str:
        kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype or self.dtype))
        self.inputs.append(helper.make_tensor_value_info(name, kind, shape))
        return name

    def weight(self, name: str, data: np.ndarray) -> str:
        data = np.asarray(data)
        self.weights[name] = data.astype(self.dtype) if data.dtype.kind == "f" else data
        return name

    def node(self, op: str, inputs: Sequence[str], outputs: int = 1, name: str = "", **attrs):
        name = name or f"{op.lower()}{len(self.nodes)}"
        results = [name if i == 0 else f"{name}_{i}" for i in range(outputs)]
        self.nodes.append(helper.make_node(op, inputs, results, name=name, **attrs))
        return results[0] if outputs == 1 else results

    def model(self, *outputs: str) -> onnx.ModelProto:
        kind = helper.np_dtype_to_tensor_dtype(np.dtype(self.dtype))
        graph = helper.make_graph(
            self.nodes,
            "test",
            self.inputs,
            [helper.make_tensor_value_info(o, kind, None) for o in outputs],
            [numpy_helper.from_array(data, name) for name, data in self.weights.items()],
        )
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset)])


class CompiledStep:
    """A training step on the graph executor: one call, arrays in, arrays out."""

    def __init__(self, step: TrainingStep) -> None:
        self.step = step
        with tvm.transform.PassContext(opt_level=0):
            built = relay.build(tvm.IRModule.from_expr(step.function), "llvm")
        self._run = graph_executor.GraphModule(built["default"](tvm.cpu()))
        self.state = dict(step.initial_state)

    def __call__(self, **feeds: np.ndarray) -> dict[str, np.ndarray]:
        values = with_defaults(self.step.inputs, {**self.state, **feeds})
        for i, spec in enumerate([*self.step.inputs, *self.step.state]):
            self._run.set_input(i, np.asarray(values[spec.name], spec.dtype))
        self._run.run()
        return {r.name: self._run.get_output(i).numpy() for i, r in enumerate(self.step.results)}


def compiled(model: onnx.ModelProto, loss: str = "mse", **options) -> CompiledStep:
    return CompiledStep(make_training_step(model, loss=loss, **options))


def directional_difference(value, at: np.ndarray, direction: np.ndarray, h: float) -> float:
    """Derivative of ``value`` along ``direction``: the fourth-order central difference."""
    f = [value(at + k * h * direction) for k in (-2, -1, 1, 2)]
    return (f[0] - 8 * f[1] + 8 * f[2] - f[3]) / (12 * h)


def check_gradients(
    model: onnx.ModelProto,
    seed: int = 0,
    h: float = 1e-3,
    tolerance: float = 1e-6,
    reference: bool = True,
    nonzero: bool = True,
    feeds: dict[str, np.ndarray] | None = None,
) -> CompiledStep:
    """Forward against ONNX's reference evaluator, gradients against finite differences.

    The model is float64 and its parameters are its initializers. The loss is the mean squared
    distance of the first output to a random target.
    """
    rng = np.random.default_rng(seed)
    run = compiled(model)
    feeds = dict(feeds or {})
    for spec in run.step.inputs:
        if spec.name not in feeds:
            feeds[spec.name] = rng.normal(size=spec.shape).astype(spec.dtype)
    got = run(**feeds)
    if reference:
        wanted = {k: v for k, v in feeds.items() if k != "target"}
        expected = ReferenceEvaluator(model).run(None, wanted)
        for output, array in zip(model.graph.output, expected, strict=True):
            np.testing.assert_allclose(got[output.name], array, rtol=1e-9, atol=1e-11)
    assert run.step.parameter_names
    for name in run.step.parameter_names:
        start = run.state[name]
        direction = rng.normal(size=start.shape)

        def value(at, name=name):
            run.state[name] = at
            return float(run(**feeds)["loss"])

        difference = directional_difference(value, start, direction, h)
        run.state[name] = start
        product = float(np.sum(got[f"grad:{name}"] * direction))
        scale = np.linalg.norm(got[f"grad:{name}"]) * np.linalg.norm(direction)
        assert scale > 0 or not nonzero, f"the gradient of {name} is zero everywhere"
        assert abs(difference - product) <= tolerance * max(scale, 1e-3), (
            name,
            difference,
            product,
        )
    return run
