"""Losses: values against NumPy, gradients against finite differences, stability."""

import numpy as np
import pytest
from onnx_models import ModelMaker, compiled, directional_difference

from tvm_dtr.builder import make_training_step
from tvm_dtr.errors import ModelError


def logits_model(shape, dtype="float64", scale=1.0):
    maker = ModelMaker(dtype=dtype)
    w = maker.weight("w", np.random.default_rng(0).normal(size=shape) * scale)
    return maker.model(maker.node("Identity", [maker.node("Neg", [w])], name="y"))


@pytest.mark.parametrize("shape,axis", [((5, 4), 1), ((3, 4, 2, 3), 1), ((4,), 0)])
def test_cross_entropy(shape, axis):
    rng = np.random.default_rng(1)
    run = compiled(logits_model(shape), loss="cross_entropy")
    labels = rng.integers(0, 4, shape[:axis] + shape[axis + 1 :])
    assert run.step.inputs[-1].shape == labels.shape
    got = run(labels=labels)
    z = -run.state["w"]
    log_p = z - np.log(np.sum(np.exp(z), axis=axis, keepdims=True))
    expected = -np.mean(np.take_along_axis(log_p, np.expand_dims(labels, axis), axis))
    np.testing.assert_allclose(got["loss"], expected, rtol=1e-12)

    def value(at):
        run.state["w"] = at
        return float(run(labels=labels)["loss"])

    start, direction = run.state["w"], rng.normal(size=shape)
    product = np.sum(got["grad:w"] * direction)
    assert abs(directional_difference(value, start, direction, 1e-3) - product) < 1e-9


def test_cross_entropy_of_huge_logits_is_finite():
    run = compiled(logits_model((3, 4), "float32", scale=1e4), loss="cross_entropy")
    got = run(labels=np.array([0, 1, 2]))
    assert np.isfinite(got["loss"]) and np.isfinite(got["grad:w"]).all()


def test_mse():
    run = compiled(logits_model((3, 4)))
    target = np.random.default_rng(2).normal(size=(3, 4))
    got = run(target=target)
    off = -run.state["w"] - target
    np.testing.assert_allclose(got["loss"], np.mean(off**2), rtol=1e-12)
    np.testing.assert_allclose(got["grad:w"], -2 * off / 12, rtol=1e-12)


def test_output_as_loss():
    maker = ModelMaker(dtype="float64")
    w = maker.weight("w", np.arange(6.0).reshape(2, 3))
    model = maker.model(maker.node("ReduceMean", [maker.node("Mul", [w, w])], name="cost"))
    got = compiled(model, loss="output")()
    np.testing.assert_allclose(got["loss"], np.mean(np.arange(6.0) ** 2))
    np.testing.assert_allclose(got["grad:w"], np.arange(6.0).reshape(2, 3) / 3)


def test_output_as_loss_must_be_a_scalar():
    with pytest.raises(ModelError, match=r"'y' has the shape \(3, 4\)"):
        make_training_step(logits_model((3, 4)), loss="output")
