"""Floating-point types are kept, or cast on request."""

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx_models import ModelMaker, compiled

from tvm_dtr.builder import make_training_step
from tvm_dtr.errors import ModelError, UsageError
from tvm_dtr.frontend import import_model
from tvm_dtr.optim import SGD


def half_model():
    rng = np.random.default_rng(0)
    maker = ModelMaker(dtype="float16")
    x = maker.input("x", [4, 3])
    half = numpy_helper.from_array(np.array(0.5, "float16"))
    y = maker.node("Gemm", [x, maker.weight("w", rng.normal(size=(3, 5)))])
    y = maker.node("Mul", [y, maker.node("Constant", [], value=half)])
    y = maker.node("Cast", [y], to=TensorProto.FLOAT16)
    return maker.model(maker.node("Relu", [y], name="y"))


def test_float16_is_kept():
    run = compiled(half_model())
    assert {s.dtype for s in run.step.inputs} == {"float16"} == {s.dtype for s in run.step.state}
    x = np.random.default_rng(1).normal(size=(4, 3)).astype("float16")
    got = run(x=x, target=np.zeros((4, 5), "float16"))
    assert got["grad:w"].dtype == "float16"
    y = np.maximum(x @ run.state["w"] * np.float16(0.5), 0)
    np.testing.assert_allclose(got["y"], y, rtol=5e-3, atol=1e-3)
    assert np.abs(got["grad:w"]).max() > 0


def test_float16_weights_take_a_step():
    run = compiled(half_model(), optimizer=SGD(0.5))
    x = np.random.default_rng(1).normal(size=(4, 3)).astype("float16")
    feeds = {"x": x, "target": np.zeros((4, 5), "float16"), "lr": np.float64(0.25)}
    gradient = compiled(half_model())(x=x, target=feeds["target"])["grad:w"]
    expected = run.state["w"] - np.float16(0.25) * gradient
    np.testing.assert_allclose(run(**feeds)["w"], expected, rtol=5e-3, atol=1e-3)


def test_float64_becomes_float16_by_way_of_float32():
    maker = ModelMaker(dtype="float64")
    w = maker.weight("w", np.array([0.159, -3.25, 1e-3]))
    back = maker.node(
        "Cast", [maker.node("Cast", [w], to=TensorProto.FLOAT16)], to=TensorProto.DOUBLE
    )
    run = compiled(maker.model(back))
    got = run(target=np.zeros(3))
    half = run.state["w"].astype("float16").astype("float64")
    np.testing.assert_array_equal(got["cast1"], half)
    np.testing.assert_allclose(got["grad:w"], 2 / 3 * half, rtol=1e-3)


def test_float16_is_cast_on_request():
    model = half_model()
    step = make_training_step(model, loss="mse", dtype="float32")
    assert {s.dtype for s in [*step.inputs, *step.state]} == {"float32"}
    assert step.initial_state["w"].dtype == "float32"
    assert model.graph.initializer[0].data_type == TensorProto.FLOAT16  # the model stays


def test_an_unknown_dtype_is_refused():
    with pytest.raises(UsageError, match="dtype is 'int8'; expected one of float16, float32"):
        import_model(half_model(), dtype="int8")


def test_bfloat16_must_be_cast():
    model = half_model()
    (weight,) = model.graph.initializer
    weight.CopyFrom(helper.make_tensor("w", TensorProto.BFLOAT16, [3, 5], [0.5] * 15))
    model.graph.input[0].type.tensor_type.elem_type = TensorProto.BFLOAT16
    with pytest.raises(ModelError, match=r"tensor 'x' is bfloat16.*--dtype float32"):
        import_model(model)
    state = import_model(model, dtype="float32").state
    np.testing.assert_array_equal(state["w"], np.full((3, 5), 0.5, "float32"))


def test_functions_of_the_model_are_inlined():
    double = helper.make_function(
        "own",
        "Twice",
        ["a"],
        ["c"],
        [helper.make_node("Add", ["a", "a"], ["c"], name="sum")],
        [helper.make_opsetid("", 17)],
    )
    maker = ModelMaker()
    w = maker.weight("w", np.ones((2, 3)))
    maker.nodes.append(helper.make_node("Twice", [w], ["y"], domain="own"))
    model = maker.model("y")
    model.functions.append(double)
    model.opset_import.append(helper.make_opsetid("own", 1))
    got = compiled(model)(target=np.zeros((2, 3), "float32"))
    np.testing.assert_array_equal(got["y"], np.full((2, 3), 2, "float32"))
    np.testing.assert_allclose(got["grad:w"], np.full((2, 3), 2 * 2 * 2 / 6), rtol=1e-6)


def test_weights_of_constant_of_shape_are_parameters():
    maker = ModelMaker()
    shape = maker.weight("shape", np.array([3, 4]))
    value = numpy_helper.from_array(np.array([0.25], "float32"))
    w = maker.node("ConstantOfShape", [shape], name="kernel", value=value)
    y = maker.node("Add", [maker.node("MatMul", [maker.input("x", [2, 3]), w]), "bias"])
    maker.nodes.insert(0, helper.make_node("ConstantOfShape", ["four"], ["bias"], value=value))
    maker.weight("four", np.array([4]))
    imported = import_model(maker.model(y))
    assert imported.parameter_names == ["kernel", "bias"]
    np.testing.assert_array_equal(imported.state["kernel"], np.full((3, 4), 0.25, "float32"))


def test_a_constant_of_a_computed_shape_is_not_trained():
    """The first state of a recurrent layer, as PyTorch exports it."""
    maker = ModelMaker()
    x = maker.weight("w", np.ones((2, 3)))
    zeros = maker.node("ConstantOfShape", [maker.node("Shape", [x])])
    assert import_model(maker.model(maker.node("Add", [x, zeros]))).parameter_names == ["w"]
