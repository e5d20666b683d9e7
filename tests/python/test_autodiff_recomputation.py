"""tvm_dtr/autodiff/recomputation.py: what a normalization gives is computed again, not kept."""

import numpy as np
from onnx_models import ModelMaker, check_gradients
from test_autodiff import normal, positive
from test_autodiff_clusters import kept, product

from tvm_dtr.builder import make_training_step
from tvm_dtr.compile.fuse import fuse
from tvm_dtr.compile.linearize import linearize
from tvm_dtr.relay_graph import calls_op, post_order


def layer_norm(maker, x):
    gamma, beta = maker.weight("gamma", positive(8)), maker.weight("beta", normal(8))
    return maker.node("LayerNormalization", [x, gamma, beta])


def projection(maker, x, name="v"):
    return maker.node("MatMul", [x, maker.weight(name, normal(8, 5))])


def test_products_keep_the_input_of_a_normalization():
    maker = ModelMaker(dtype="float64", opset=18)
    model = maker.model(projection(maker, layer_norm(maker, product(maker))))
    check_gradients(model)
    assert kept(model) == ["nn.dense"]


def test_batch_statistics_give_the_result_again():
    maker = ModelMaker(dtype="float64", opset=18)
    operands = [("scale", positive(8)), ("shift", normal(8)), ("m", normal(8)), ("s", positive(8))]
    names = [product(maker), *(maker.weight(name, data) for name, data in operands)]
    norm = maker.node("BatchNormalization", names, outputs=3, training_mode=1)
    model = maker.model(projection(maker, norm[0]))
    check_gradients(model)
    assert kept(model) == ["nn.dense"]


def test_products_of_one_result_share_what_is_computed_again():
    maker = ModelMaker(dtype="float64", opset=18)
    x = maker.node("Reshape", [product(maker), maker.weight("shape", np.array([1, 3, 8]))])
    y = layer_norm(maker, x)
    # Three axes: each product has its own reshape of the operand.
    model = maker.model(maker.node("Sum", [projection(maker, y, name) for name in "qkv"]))
    check_gradients(model)
    loss, _, *grads = make_training_step(model, loss="mse").function.body.fields
    forward = set(post_order([loss]))
    again = {
        call.args[0]
        for call in post_order(grads, known=forward)
        if calls_op(call, "nn.dense") and tuple(call.checked_type.shape) == (8, 5)
    }
    assert len(again) == 3
    copies = {e for e in post_order(again, known=forward) if calls_op(e, "subtract")}
    assert len(copies) == 1


def test_gradients_of_a_cheap_formula_share_no_tensor():
    maker = ModelMaker(opset=18)
    y = maker.node("Mul", [product(maker), maker.weight("scale", positive(8))])
    y = maker.node("Add", [y, maker.weight("shift", normal(8))])
    model = maker.model(maker.node("PRelu", [y, maker.weight("slope", np.array([0.25]))]))
    graph = linearize(fuse(make_training_step(model, loss="mse").function)).graph
    full = [t for op in graph.ops for t in op.outputs if graph.tensors[t].shape == (3, 8)]
    # The product, the output, its difference to the target, that twice over the count, and the
    # product's gradient; with what the operands' gradients would share it was nine.
    assert len(full) == 5
