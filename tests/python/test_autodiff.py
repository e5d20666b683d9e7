"""Gradients of the other ops in float64, forward values against ONNX's reference evaluator."""

import numpy as np
import onnx
import pytest
import tvm
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from onnx_models import ModelMaker, check_gradients
from tvm import relay

from tvm_dtr.builder import make_training_step
from tvm_dtr.relay_graph import post_order

RNG = np.random.default_rng(7)


def normal(*shape):
    return RNG.normal(size=shape)


def positive(*shape):
    return RNG.uniform(0.5, 2, size=shape)


def spaced(*shape):
    """Distinct values at least 0.05 apart: no finite difference crosses a kink or a tie."""
    count = int(np.prod(shape))
    return ((RNG.permutation(count) - count // 2 + 0.5) * 0.05).reshape(shape)


def model_of(op, operands, outputs=1, opset=17, **attrs):
    maker = ModelMaker(dtype="float64", opset=opset)
    names = [
        maker.weight(f"p{i}", np.asarray(data)) if data is not None else ""
        for i, data in enumerate(operands)
    ]
    result = maker.node(op, names, outputs=outputs, **attrs)
    return maker.model(result if outputs == 1 else result[0])


ELEMENTWISE = {
    **{
        op: [spaced(3, 4)]
        for op in ("Relu", "Sigmoid", "Tanh", "Exp", "Abs", "Neg", "Sin", "Cos", "Erf")
    },
    **{op: [positive(3, 4)] for op in ("Log", "Sqrt", "Reciprocal")},
    "Add": [normal(3, 1, 4), normal(2, 1)],
    "Sub": [normal(4), normal(3, 4)],
    "Mul": [normal(3, 1, 4), normal(2, 1)],
    "Div": [normal(2, 3), positive(3)],
    "Pow": [positive(3, 4), normal(4)],
    "Sum": [normal(3, 4), normal(4), normal(1, 1)],
    "Softmax": [normal(3, 4)],
    "LogSoftmax": [normal(3, 4)],
    "GlobalAveragePool": [normal(2, 3, 4, 5)],
    "GlobalMaxPool": [spaced(2, 3, 4, 5)],
}


@pytest.mark.parametrize("op", ELEMENTWISE)
def test_op(op):
    check_gradients(model_of(op, ELEMENTWISE[op]))


WITH_ATTRIBUTES = [
    ("LeakyRelu", [spaced(3, 4)], {"alpha": 0.125}),
    ("Clip", [spaced(3, 8), np.array(-0.26), np.array(0.34)], {}),
    ("Softmax", [normal(3, 4, 5)], {"axis": 1}),
    ("LogSoftmax", [normal(3, 4, 5)], {"axis": 0}),
    ("Gemm", [normal(3, 4), normal(4, 5), normal(5)], {"alpha": 0.5, "beta": 2.0}),
    ("Gemm", [normal(4, 3), normal(5, 4), normal(3, 1)], {"transA": 1, "transB": 1}),
    ("MatMul", [normal(2, 3, 4), normal(4, 5)], {}),
    (
        "MaxPool",
        [spaced(2, 3, 7, 8)],
        {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]},
    ),
    ("MaxPool", [spaced(2, 3, 7, 8)], {"kernel_shape": [2, 3], "strides": [2, 2], "ceil_mode": 1}),
    ("MaxPool", [spaced(2, 3, 7)], {"kernel_shape": [3], "strides": [2], "pads": [1, 1]}),
    (
        "AveragePool",
        [normal(2, 3, 7, 8)],
        {"kernel_shape": [3, 2], "strides": [2, 1], "pads": [1, 1, 0, 0]},
    ),
    (
        "AveragePool",
        [normal(2, 3, 7, 8)],
        {"kernel_shape": [3, 2], "strides": [2, 1], "pads": [1, 1, 1, 0], "count_include_pad": 1},
    ),
    ("Flatten", [normal(2, 3, 4)], {"axis": -1}),
    ("Reshape", [normal(2, 3, 4), np.array([0, -1])], {}),
    ("Transpose", [normal(2, 3, 4)], {"perm": [1, 2, 0]}),
    ("Concat", [normal(2, 3), normal(2, 1), normal(2, 2)], {"axis": -1}),
    ("Squeeze", [normal(2, 1, 3, 1), np.array([1])], {}),
    ("Unsqueeze", [normal(2, 3), np.array([0, -1])], {}),
    ("Pad", [normal(2, 3), np.array([1, 0, 2, 1])], {}),
    ("ReduceMean", [normal(2, 3, 4)], {"axes": [0, 2]}),
    ("ReduceMean", [normal(2, 3)], {}),
    ("ReduceMax", [spaced(2, 3, 4)], {"axes": [1], "keepdims": 0}),
    ("ReduceSum", [normal(2, 3, 4), np.array([-1])], {"keepdims": 0}),
]


@pytest.mark.parametrize(
    "op,operands,attrs", WITH_ATTRIBUTES, ids=[f"{c[0]}-{i}" for i, c in enumerate(WITH_ATTRIBUTES)]
)
def test_op_with_attributes(op, operands, attrs):
    check_gradients(model_of(op, operands, **attrs))


@pytest.mark.parametrize("shape", [(3, 4, 5, 2), (6, 4)])
def test_batch_normalization(shape):
    channel = [positive(4), normal(4), normal(4), positive(4)]
    model = model_of(
        "BatchNormalization", [normal(*shape), *channel], outputs=3, training_mode=1, momentum=0.75
    )
    check_gradients(model)


def test_tied_maximum_goes_to_the_first():
    maker = ModelMaker(dtype="float64")
    x = maker.weight("x", np.zeros((1, 1, 2, 4)))
    model = maker.model(maker.node("MaxPool", [x], kernel_shape=[2, 2], strides=[2, 2]))
    from onnx_models import compiled

    got = compiled(model)(target=np.ones((1, 1, 1, 2)))
    np.testing.assert_array_equal(got["grad:x"], [[[[-1, 0, -1, 0], [0, 0, 0, 0]]]])


@settings(max_examples=8, deadline=None, phases=[Phase.generate], derandomize=True)
@given(st.lists(st.integers(1, 3), min_size=1, max_size=3), st.data())
def test_broadcasting(shape, data):
    """Any pair of shapes that broadcast together."""
    other = [
        data.draw(st.sampled_from([1, n])) for n in shape[data.draw(st.integers(0, len(shape))) :]
    ]
    op = data.draw(st.sampled_from(["Add", "Mul", "Div"]))
    if not other:
        other = [1]
    check_gradients(model_of(op, [normal(*shape), positive(*other)]))


def test_a_tensor_used_twice_sums_its_gradients():
    maker = ModelMaker(dtype="float64")
    w = maker.weight("w", normal(3, 3))
    y = maker.node("Tanh", [w])
    z = maker.node("Add", [maker.node("Mul", [y, y]), maker.node("Gemm", [y, w])])
    check_gradients(maker.model(z))


def test_deep_chains_need_no_recursion():
    from tvm_dtr.builder import make_training_step

    maker = ModelMaker()
    y = maker.weight("w", np.ones((2, 2)))
    for _ in range(1500):
        y = maker.node("Tanh", [y])
    step = make_training_step(maker.model(y), loss="mse")
    assert step.parameter_names == ["w"]


def test_a_table_that_is_also_a_matrix_has_one_dense_gradient():
    maker = ModelMaker(dtype="float64")
    table = maker.weight("table", normal(5, 4))
    value = onnx.numpy_helper.from_array(np.array([[0, 3, 3]]))
    tokens = maker.node("Constant", [], value=value)
    rows = maker.node("Tanh", [maker.node("Gather", [table, tokens], axis=0)])
    head = maker.node("Transpose", [table], perm=[1, 0])
    model = maker.model(maker.node("MatMul", [rows, head]))
    check_gradients(model)
    step = make_training_step(model, loss="mse")
    names = [
        call.op.name
        for call in post_order([step.function.body])
        if isinstance(call, relay.Call) and isinstance(call.op, tvm.ir.Op)
    ]
    assert "dtr.take_gradient_onto" in names and "dtr.take_gradient" not in names
