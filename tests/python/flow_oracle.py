"""Losses and gradients of models with control flow by onnxruntime and finite differences."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest

import tvm_dtr


class Oracle:
    """The loss (mse of the first output) by onnxruntime, weights given from outside."""

    def __init__(self, model: onnx.ModelProto) -> None:
        copy = onnx.ModelProto.FromString(model.SerializeToString())
        for weight in model.graph.initializer:
            copy.graph.input.append(
                onnx.helper.make_tensor_value_info(weight.name, weight.data_type, weight.dims)
            )
        copy.ir_version = 8
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4  # shadowed names of weights are meant
        self.session = onnxruntime.InferenceSession(copy.SerializeToString(), options)
        self.output = model.graph.output[0].name

    def loss(self, inputs: dict, weights: dict) -> float:
        feeds = {k: np.asarray(v) for k, v in {**inputs, **weights}.items() if k != "target"}
        off = self.session.run([self.output], feeds)[0] - inputs["target"]
        return float((off * off).sum() / max(off.size, 1))

    def slope(self, inputs: dict, weights: dict, name: str, index: tuple) -> float:
        """Of the loss, by central differences."""
        losses = []
        for step in (1e-5, -1e-5):
            moved = {**weights, name: weights[name].copy()}
            moved[name][index] += step
            losses.append(self.loss(inputs, moved))
        return (losses[0] - losses[1]) / 2e-5


def check_gradients(model: onnx.ModelProto, program: tvm_dtr.Program, batches: list[dict]) -> None:
    oracle, weights = Oracle(model), program.initial_state
    vm = tvm_dtr.VirtualMachine(program)
    rng = np.random.default_rng(0)
    for inputs in batches:
        results = vm.step(**inputs)
        assert results["loss"] == pytest.approx(oracle.loss(inputs, weights), rel=1e-9, abs=1e-12)
        for name, value in weights.items():
            index = tuple(rng.integers(0, n) for n in value.shape)
            expected = oracle.slope(inputs, weights, name, index)
            assert results[f"grad:{name}"][index] == pytest.approx(expected, rel=1e-5, abs=1e-7)
