"""Mixed precision against PyTorch's autocast, and what it keeps in memory."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx_models import ModelMaker

import tvm_dtr
from tvm_dtr import models
from tvm_dtr.optim import SGD

GOLDEN = np.load(Path(__file__).parent.parent / "data" / "torch_mixed_precision.npz")
RATE = 0.05  # as in tests/data/make_mixed_precision_goldens.py
HEADS = 2
SCALES = {"float16": 1024.0, "bfloat16": None}
# Distance to PyTorch's autocast in the same type, relative to the norm of all parameters.
MOST = {"float16": 1e-3, "bfloat16": 5e-3}


def start(net):
    prefix = f"{net}/start/"
    return {key.removeprefix(prefix): GOLDEN[key] for key in GOLDEN if key.startswith(prefix)}


def conv_net():
    maker = ModelMaker()
    p = {name: maker.weight(name, value) for name, value in start("conv").items()}

    def conv(x, i):
        y = maker.node("Conv", [x, p[f"c{i}"]], pads=[1, 1, 1, 1])
        mean, var = (maker.weight(f"{n}{i}", np.zeros(8) + (n == "var")) for n in ("mean", "var"))
        operands = [y, p[f"g{i}"], p[f"b{i}"], mean, var]
        return maker.node("BatchNormalization", operands, 3, training_mode=1)[0]

    h = maker.node("Relu", [conv(maker.input("x", GOLDEN["conv/x"].shape[1:]), 0)])
    y = maker.node("Relu", [conv(h, 1)])
    h = maker.node("Relu", [maker.node("Add", [conv(y, 2), h])])
    h = maker.node("Flatten", [maker.node("GlobalAveragePool", [h])])
    return maker.model(maker.node("Gemm", [h, p["fc"], p["fcb"]], name="y", transB=1))


def gpt():
    maker = ModelMaker(opset=20)
    p = {name: maker.weight(name, value) for name, value in start("gpt").items()}
    batch, context = GOLDEN["gpt/x"].shape[1:]
    width = GOLDEN["gpt/start/wte"].shape[1]

    def norm(h, name):
        return maker.node("LayerNormalization", [h, p[f"{name}.g"], p[f"{name}.b"]], axis=-1)

    def split_heads(t, perm):
        shape = maker.weight(f"shape_{t}", np.array([batch, context, HEADS, width // HEADS]))
        return maker.node("Transpose", [maker.node("Reshape", [t, shape])], perm=perm)

    rows = maker.node("Gather", [p["wte"], maker.input("x", (batch, context), "int64")], axis=0)
    h = maker.node("Add", [rows, p["wpe"]])
    qkv = maker.node("MatMul", [norm(h, "ln1"), p["qkv"]])
    q, k, v = maker.node("Split", [qkv], 3, axis=-1)
    q, v = (split_heads(t, [0, 2, 1, 3]) for t in (q, v))
    scores = maker.node("MatMul", [q, split_heads(k, [0, 2, 3, 1])])
    mask = np.triu(np.full((context, context), -1e9), 1).astype("float32")
    constant = maker.node("Constant", [], value_float=(HEADS / width) ** 0.5)
    scores = maker.node("Mul", [scores, constant])
    mask = maker.node("Constant", [], value=onnx.numpy_helper.from_array(mask))
    weights = maker.node("Softmax", [maker.node("Add", [scores, mask])], axis=-1)
    mixed = maker.node("Transpose", [maker.node("MatMul", [weights, v])], perm=[0, 2, 1, 3])
    joined = maker.weight("joined", np.array([batch, context, width]))
    mixed = maker.node("Reshape", [mixed, joined])
    h = maker.node("Add", [h, maker.node("MatMul", [mixed, p["proj"]])])
    up = maker.node("MatMul", [norm(h, "ln2"), p["up"]])
    h = maker.node("Add", [h, maker.node("MatMul", [maker.node("Gelu", [up]), p["down"]])])
    head = maker.node("Transpose", [p["wte"]], perm=[1, 0])
    logits = maker.node("MatMul", [norm(h, "ln3"), head])
    return maker.model(maker.node("Transpose", [logits], name="y", perm=[0, 2, 1]))


NETS = {"conv": conv_net, "gpt": gpt}


def distance(net, one, two):
    """Between two sets of parameters, relative to the norm of the second."""
    off = sum(np.sum((one[n] - two[n]).astype("float64") ** 2) for n in start(net))
    return np.sqrt(off / sum(np.sum(two[n].astype("float64") ** 2) for n in start(net)))


@pytest.mark.parametrize("low", SCALES)
@pytest.mark.parametrize("net", NETS)
def test_20_steps_are_those_of_autocast(net, low):
    program = tvm_dtr.build(
        NETS[net](),
        loss="cross_entropy",
        optimizer=SGD(RATE),
        mixed_precision=low,
        loss_scale=SCALES[low],
    )
    vm = tvm_dtr.VirtualMachine(program)
    losses = []
    for x, labels in zip(GOLDEN[f"{net}/x"], GOLDEN[f"{net}/labels"], strict=True):
        losses.append(float(vm.step(x=x, labels=labels)["loss"]))
    ended = dict(vm.parameters)
    assert all(ended[name].dtype == "float32" for name in start(net))
    torch, wide = (
        {name: GOLDEN[f"{net}/{dtype}/{name}"] for name in start(net)} for dtype in (low, "float32")
    )
    assert distance(net, ended, torch) < MOST[low]
    assert distance(net, ended, wide) > 1e-6  # not float32 in disguise
    np.testing.assert_allclose(losses, GOLDEN[f"{net}/{low}/losses"], rtol=MOST[low])


@pytest.mark.parametrize(
    ("model", "most"),
    [
        (lambda: models.make("resnet8", batch=8), 0.7),
        (
            lambda: models.gpt(
                batch=8, seed=0, layers=2, width=64, context=32, vocabulary=64, heads=2
            ),
            0.8,
        ),
    ],
    ids=["resnet8", "gpt"],
)
def test_activations_are_kept_in_the_low_type(model, most):
    peaks = [
        tvm_dtr.build(
            model(), loss="cross_entropy", optimizer=SGD(), mixed_precision=low
        ).unbudgeted_peak_bytes
        for low in ("bfloat16", None)
    ]
    assert peaks[0] < most * peaks[1]


def test_max_pooling_is_in_the_low_type():
    maker = ModelMaker()
    w = maker.weight("w", np.random.default_rng(0).normal(size=(4, 2, 3, 3)))
    h = maker.node("Conv", [maker.input("x", (2, 2, 8, 8)), w], pads=[1, 1, 1, 1])
    h = maker.node("MaxPool", [maker.node("Relu", [h])], kernel_shape=[2, 2], strides=[2, 2])
    model = maker.model(maker.node("GlobalAveragePool", [h], name="y"))
    program = tvm_dtr.build(model, loss="mse", optimizer=SGD(RATE), mixed_precision="bfloat16")
    x, target = np.ones((2, 2, 8, 8), "float32"), np.zeros((2, 4, 1, 1), "float32")
    wide = tvm_dtr.build(model, loss="mse", optimizer=SGD(RATE))
    losses = [
        float(tvm_dtr.VirtualMachine(p).step(x=x, target=target)["loss"]) for p in (program, wide)
    ]
    assert losses[0] == pytest.approx(losses[1], rel=1e-2) and losses[0] != losses[1]
