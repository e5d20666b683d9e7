"""Tensors for which there are no kernels are refused by name, before anything is compiled."""

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from tvm_dtr.errors import ModelError
from tvm_dtr.frontend import import_model

WEIGHT = numpy_helper.from_array(np.ones((3, 2), "float32"), "w")
PRODUCT = [helper.make_node("MatMul", ["x", "w"], ["y"])]
SPARSE = helper.make_sparse_tensor(
    helper.make_tensor("w", TensorProto.FLOAT, [1], [1.0]),
    helper.make_tensor("indices", TensorProto.INT64, [1], [0]),
    [3, 2],
)


def model(x, nodes=PRODUCT, weights=(WEIGHT,), sparse=()):
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph(nodes, "g", [x], [y], list(weights))
    graph.sparse_initializer.extend(sparse)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])


def tensor(shape=(2, 3), kind=TensorProto.FLOAT):
    return helper.make_tensor_value_info("x", kind, shape)


def words():
    return numpy_helper.from_array(np.array([["a", "b"]] * 3, dtype=object), "w")


def repeats(*counts):
    return numpy_helper.from_array(np.array(counts, "int64"), "r")


CASES = {
    "strings as input": (model(tensor(kind=TensorProto.STRING)), "'x': type string is not"),
    "strings stored": (model(tensor(), weights=[words()]), "'w': type string is not"),
    "complex numbers": (model(tensor(kind=TensorProto.COMPLEX64)), "type complex64 is not"),
    "numbers of 8 bits": (model(tensor(kind=TensorProto.FLOAT8E4M3FN)), "float8e4m3fn is not"),
    "stored sparse": (model(tensor(), weights=(), sparse=[SPARSE]), "'w' is stored sparse"),
    "a sparse constant": (
        model(
            tensor(),
            [helper.make_node("Constant", [], ["w"], sparse_value=SPARSE), *PRODUCT],
            weights=(),
        ),
        "'w' is stored sparse",
    ),
    "a sequence": (
        model(helper.make_tensor_sequence_value_info("x", TensorProto.FLOAT, (2, 3))),
        "'x' is not a tensor",
    ),
    "2^32 elements": (
        model(tensor((1 << 20, 1 << 12)), [helper.make_node("Relu", ["x"], ["y"])]),
        "'x' has the shape .* more than the 2147483647 that kernels can index",
    ),
    "a result of 2^39 elements": (
        model(
            tensor((1 << 18, 3)),
            [helper.make_node("Tile", ["x", "r"], ["y"])],
            [repeats(1 << 10, 1 << 10)],
        ),
        "gives tensor 'y', .* more than the 2147483647 that kernels can index",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_one_line_names_the_tensor(case):
    proto, message = CASES[case]
    with pytest.raises(ModelError, match=message) as caught:
        import_model(proto)
    assert "\n" not in str(caught.value)


def test_a_graph_that_is_no_graph_is_a_model_error():
    broken = model(tensor())
    broken.graph.initializer[0].dims[0] = 77
    with pytest.raises(
        ModelError, match=r"the ONNX graph cannot be imported \(ValueError: [^\n]+$"
    ):
        import_model(broken)


def test_what_a_callback_raises_is_not_the_graphs_fault():
    def stop(*_):
        raise ZeroDivisionError("enough")

    relu = model(tensor((2,)), [helper.make_node("Relu", ["x"], ["y"])])
    with pytest.raises(ZeroDivisionError, match="enough"):
        import_model(relu, progress=stop)


def test_a_scalar_is_a_tensor():
    two = numpy_helper.from_array(np.float32(2), "s")
    scalar = model(tensor(()), [helper.make_node("Mul", ["x", "s"], ["y"])], [two])
    assert import_model(scalar).inputs[0].shape == ()
