"""Formulas that are written out as several nodes keep one operand for the backward pass."""

import math

import numpy as np
from onnx_models import ModelMaker, check_gradients
from test_autodiff import normal

from tvm_dtr.builder import make_training_step
from tvm_dtr.relay_graph import children, post_order


def kept(model):
    """Names of the forward calls of full size whose results the backward pass reads."""
    step = make_training_step(model, loss="mse")
    loss, _, *grads = step.function.body.fields
    forward = set(post_order([loss]))
    backward = post_order(grads, known=forward)
    read = {e for call in backward for e in children(call) if e in forward}
    full = (e for e in read if hasattr(e, "op") and tuple(e.checked_type.shape) == (3, 8))
    return sorted(e.op.name for e in full)


def constant(maker, value):
    return maker.weight(f"c{len(maker.weights)}", np.array(value))


def gelu(maker, x):
    """As PyTorch's TorchScript exporter writes it."""
    inner = maker.node("Erf", [maker.node("Div", [x, constant(maker, math.sqrt(2))])])
    y = maker.node("Mul", [x, maker.node("Add", [inner, constant(maker, 1.0)])])
    return maker.node("Mul", [y, constant(maker, 0.5)])


def silu(maker, x):
    return maker.node("Mul", [x, maker.node("Sigmoid", [x])])


def mish(maker, x):
    return maker.node("Mul", [x, maker.node("Tanh", [maker.node("Softplus", [x])])])


def product(maker):
    return maker.node("Gemm", [maker.weight("x", normal(3, 4)), maker.weight("w", normal(4, 8))])


def test_a_formula_keeps_its_operand():
    for formula in (gelu, silu, mish):
        maker = ModelMaker(dtype="float64")
        model = maker.model(formula(maker, product(maker)))
        check_gradients(model)
        assert kept(model) == ["nn.dense", "subtract"], formula  # and y - target of the loss


def test_an_affine_map_before_a_formula_joins_it():
    maker = ModelMaker(dtype="float64")
    y = maker.node("Mul", [product(maker), maker.weight("scale", normal(8))])
    model = maker.model(silu(maker, maker.node("Add", [y, maker.weight("shift", normal(3, 1))])))
    check_gradients(model)
    assert kept(model) == ["nn.dense", "subtract"]


def test_what_a_rule_keeps_anyway_is_left_to_it():
    maker = ModelMaker(dtype="float64")
    y = maker.node("Add", [product(maker), maker.weight("shift", normal(8))])
    model = maker.model(maker.node("Relu", [y]))
    assert kept(model) == ["nn.relu", "subtract"]


def test_values_that_others_read_are_not_computed_again():
    maker = ModelMaker(dtype="float64")
    x = product(maker)
    gate = maker.node("Sigmoid", [x])
    y = maker.node("Mul", [x, gate])
    model = maker.model(maker.node("MatMul", [y, maker.node("Transpose", [gate])]))
    check_gradients(model)
    assert "sigmoid" in kept(model)
