"""Matrix products, transposed convolution, activations and normalizations."""

import math

import numpy as np
import pytest
from onnx_models import ModelMaker, check_gradients, compiled
from test_autodiff import model_of, normal, positive, spaced


@pytest.mark.parametrize(
    "op",
    ["Celu", "Elu", "Gelu", "HardSigmoid", "HardSwish", "Mish", "Selu", "Softplus", "Softsign"],
)
def test_activation(op):
    # The reference evaluator rounds the attributes of some and has no Gelu.
    exact = op in ("Mish", "Softplus", "Softsign")
    check_gradients(model_of(op, [spaced(3, 8)], opset=20), reference=exact)


@pytest.mark.parametrize("approximate", ["none", "tanh"])
def test_gelu(approximate):
    model = model_of("Gelu", [spaced(3, 8)], opset=20, approximate=approximate)
    run = check_gradients(model, reference=False)
    x = run.state["p0"]
    inner = np.vectorize(math.erf)(x / math.sqrt(2))
    if approximate == "tanh":
        inner = np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))
    got = run(target=x)[model.graph.output[0].name]
    np.testing.assert_allclose(got, 0.5 * x * (1 + inner), rtol=1e-7, atol=1e-9)


def test_activations_keep_only_their_input():
    from tvm_dtr.builder import make_training_step
    from tvm_dtr.relay_graph import children, post_order

    step = make_training_step(model_of("Mish", [spaced(3, 8)], opset=20), loss="mse")
    loss, _, grad = step.function.body.fields
    forward = post_order([loss])
    backward = post_order([grad], known=forward)
    kept = {e for call in backward for e in children(call) if e in set(forward)}
    kept = {e.op.name for e in kept if hasattr(e, "op")}
    assert kept == {"subtract"}  # y - target of the loss; nothing of the activation


def test_prelu():
    check_gradients(model_of("PRelu", [spaced(2, 3, 4), normal(3, 1)]))


NORMALIZATIONS = [
    ("LayerNormalization", [normal(2, 3, 4), normal(4), normal(4)], {}),
    ("LayerNormalization", [normal(2, 3, 4), normal(3, 4)], {"axis": 1}),
    ("InstanceNormalization", [normal(2, 3, 4, 5), normal(3), normal(3)], {}),
]


@pytest.mark.parametrize("op,operands,attrs", NORMALIZATIONS)
def test_normalization(op, operands, attrs):
    check_gradients(model_of(op, operands, **attrs))


@pytest.mark.parametrize("opset,count", [(18, 2), (21, 4)])
def test_group_normalization(opset, count):
    x, gamma, beta = normal(2, 4, 3, 5), positive(count), normal(count)
    model = model_of("GroupNormalization", [x, gamma, beta], opset=opset, num_groups=2)
    got = check_gradients(model, reference=False)(target=x)[model.graph.output[0].name]
    rows = x.reshape(2, 2, -1)
    rows = (rows - rows.mean(2, keepdims=True)) / np.sqrt(rows.var(2, keepdims=True) + 1e-5)
    each = [np.repeat(p, 4 // count).reshape(4, 1, 1) for p in (gamma, beta)]
    np.testing.assert_allclose(got, rows.reshape(x.shape) * each[0] + each[1], rtol=1e-9)


@pytest.mark.parametrize(
    "a,b",
    [
        ((2, 3, 4), (2, 4, 5)),
        ((2, 1, 3, 4), (3, 4, 5)),
        ((3, 4), (2, 4, 5)),
        ((4,), (2, 4, 5)),
        ((2, 3, 4), (4,)),
        ((4,), (4,)),
        ((4,), (4, 3)),
    ],
)
def test_matmul(a, b):
    check_gradients(model_of("MatMul", [normal(*a), normal(*b)]))


def test_matmul_undoes_a_transpose():
    maker = ModelMaker(dtype="float64")
    a, b = maker.weight("a", normal(2, 3, 4)), maker.weight("b", normal(2, 5, 4))
    model = maker.model(maker.node("MatMul", [a, maker.node("Transpose", [b], perm=[0, 2, 1])]))
    run = check_gradients(model)
    loss = run.step.function.body.fields[0]
    from tvm_dtr.relay_graph import post_order

    assert "transpose" not in {e.op.name for e in post_order([loss]) if hasattr(e, "op")}


TRANSPOSED = [
    ((2, 4, 5, 6), (4, 3, 3, 3), {"strides": [2, 2], "pads": [1] * 4, "output_padding": [1, 1]}),
    ((2, 4, 5), (4, 3, 2), {"strides": [2]}),
    ((1, 2, 4, 4), (2, 2, 2, 2), {"strides": [2, 2]}),
]


@pytest.mark.parametrize("x,w,attrs", TRANSPOSED)
def test_conv_transpose(x, w, attrs):
    check_gradients(model_of("ConvTranspose", [normal(*x), normal(*w), normal(w[1])], **attrs))


def test_conv_transpose_with_groups_and_dilation():
    attrs = {"group": 2, "strides": [2, 3], "dilations": [2, 1], "pads": [0, 1, 1, 0]}
    x, w = normal(2, 4, 5, 6), normal(4, 3, 2, 3)
    run = check_gradients(model_of("ConvTranspose", [x, w], **attrs), reference=False)
    # Each group alone is a transposed convolution without groups.
    y = run(target=np.zeros(run.step.inputs[-1].shape))["convtranspose0"]
    attrs.pop("group")
    for g in (0, 1):
        part = model_of("ConvTranspose", [x[:, 2 * g : 2 * g + 2], w[2 * g : 2 * g + 2]], **attrs)
        alone = compiled(part)(target=np.zeros_like(y[:, :3]))["convtranspose0"]
        np.testing.assert_allclose(y[:, 3 * g : 3 * g + 3], alone, rtol=1e-12)
