"""Operators that no gradient passes through, or that take a way of their own for some operands,
against ONNX Runtime."""

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from tvm_dtr.builder import build_evaluation
from tvm_dtr.errors import ModelError
from tvm_dtr.frontend import import_model
from tvm_dtr.vm import VirtualMachine

X = np.random.default_rng(3).normal(size=(3, 5)).astype("float32")
X[0, 1] = X[0, 4] = 3.0  # the largest, twice
FLOAT, INT = {"to": TensorProto.FLOAT}, {"to": TensorProto.INT64}


class Nodes:
    """Nodes one after the other, whose vectors together are the output."""

    def __init__(self):
        self.nodes, self.stored, self.vectors = [], [], []

    def constant(self, value, kind):
        name = f"c{len(self.stored)}"
        self.stored.append(numpy_helper.from_array(np.array(value, kind), name))
        return name

    def node(self, op, *inputs, **attrs):
        name = f"n{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, list(inputs), [name], name=name, **attrs))
        return name

    def result(self, op, *inputs, **attrs):
        made = self.node("Cast", self.node(op, *inputs, **attrs), **FLOAT)
        self.vectors.append(self.node("Reshape", made, self.constant([-1], "int64")))

    def model(self):
        joined = self.node("Concat", *self.vectors, axis=0)
        x = helper.make_tensor_value_info("x", TensorProto.FLOAT, X.shape)
        y = helper.make_tensor_value_info(joined, TensorProto.FLOAT, None)
        graph = helper.make_graph(self.nodes, "g", [x], [y], self.stored)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def add_indices(n):
    n.result("ArgMax", "x", axis=1)
    n.result("ArgMax", "x", axis=1, select_last_index=1, keepdims=0)
    n.result("ArgMin", "x", axis=0, select_last_index=1)
    depth, values = n.constant(5, "int64"), n.constant([0.5, 2.0], "float32")
    classes = n.node("ArgMin", "x", axis=1, keepdims=0)
    n.result("OneHot", classes, depth, values)
    n.result(
        "OneHot", n.node("Sub", classes, n.constant([5, 0, 9], "int64")), depth, values, axis=0
    )


def add_arithmetic(n):
    mean = n.node("ReduceMean", "x", keepdims=0)
    n.result("Clip", "x", mean, n.node("Add", mean, n.constant(0.5, "float32")))
    n.result("Clip", "x", "", mean)
    whole = n.node("Cast", n.node("Mul", "x", n.constant(7, "float32")), **INT)
    n.result("Mod", whole, n.constant(3, "int64"))
    n.result("Mod", whole, n.constant(-3, "int64"))
    n.result("Mod", whole, n.constant(3, "int64"), fmod=1)
    n.result("Pow", whole, n.constant(2.0, "float32"))
    square = n.node("MatMul", "x", n.node("Transpose", "x", perm=[1, 0]))
    n.result("Einsum", square, equation="ii->i")
    n.result("Einsum", square, square, equation="ij,kk->i")
    n.result("Einsum", "x", equation="ij->")


def add_windows(n):
    image = n.node("Reshape", "x", n.constant([1, 1, 3, 5], "int64"))
    filters = n.constant(np.arange(9).reshape(1, 1, 3, 3), "float32")
    for pad in ("SAME_UPPER", "SAME_LOWER"):
        n.result("ConvTranspose", image, filters, strides=[2, 2], auto_pad=pad)
    n.result("ConvTranspose", image, filters, strides=[2, 2], output_shape=[6, 10])


@pytest.mark.parametrize("add", [add_indices, add_arithmetic, add_windows])
def test_values_are_those_of_onnx_runtime(add):
    nodes = Nodes()
    add(nodes)
    model = nodes.model()
    session = onnxruntime.InferenceSession(model.SerializeToString())
    (expected,) = session.run(None, {"x": X})
    outputs = VirtualMachine(build_evaluation(model)).step(x=X)
    np.testing.assert_allclose(outputs[model.graph.output[0].name], expected, rtol=1e-5, atol=1e-5)


def refused(op, *operands, message, **attrs):
    nodes = Nodes()
    inputs = [o if isinstance(o, str) else nodes.constant(o, o.dtype) for o in operands]
    nodes.result(op, *inputs, **attrs)
    with pytest.raises(ModelError, match=message) as caught:
        import_model(nodes.model())
    assert "\n" not in str(caught.value)


def indices(*values):
    return np.array(values, "int64")


UPDATES = np.ones((2, 5), "float32")
SCALES = np.ones(4, "float32")
REFUSED = {
    "ranks that differ": ("GatherElements", "x", indices(0), "the ranks differ", {}),
    "too deep": ("GatherND", "x", indices([0, 0, 0]), "name 3 axes of data", {}),
    "updates of another shape": (
        ("ScatterElements", "x", indices([0, 1]), UPDATES),
        "and updates .* differ",
        {},
    ),
    "scattered too deep": (
        ("ScatterND", "x", indices([0, 0, 0]), np.ones(1, "float32")),
        "name 3 axes",
        {},
    ),
    "updates that do not fit": (
        ("ScatterND", "x", indices([0], [1]), np.ones((2, 4), "float32")),
        "do not fit indices",
        {},
    ),
    "k beyond the axis": ("TopK", "x", indices(6), "k is 6; expected 1 to 5", {}),
    "terms for operands": ("Einsum", "x", "2 terms for 1 operands", {"equation": "ij,jk->ik"}),
    "sizes of one axis": ("Einsum", "x", "has the sizes 3 and 5", {"equation": "ii->i"}),
    "too few axes": ("Einsum", "x", "for", {"equation": "ijk->i"}),
}


@pytest.mark.parametrize("case", REFUSED)
def test_one_line_says_what_does_not_fit(case):
    *call, message, attrs = REFUSED[case]
    op, *operands = call[0] if isinstance(call[0], tuple) else call
    refused(op, *operands, message=message, **attrs)
