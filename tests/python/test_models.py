"""The model builders: valid ONNX, readable names, the papers' sizes, seeded weights."""

import math
from collections import Counter

import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from onnx.reference import ReferenceEvaluator

from tvm_dtr import models
from tvm_dtr.errors import UsageError

LARGE = ("resnet1202", "gpt2", "unet-256")  # seconds and hundreds of megabytes
SMALL = [name for name in models.MODELS if name not in (*LARGE, *models.CONTROL_FLOW)]
# Of the models whose logits are not (rows, 10).
LOGITS = {
    "resnet50-224": [1000],
    "densenet121-224": [1000],
    "unet": [4, 64, 64],
    "gpt": [256, 128],
}


def initializers(model):
    return {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}


def dims(value):
    return [d.dim_param or d.dim_value for d in value.type.tensor_type.shape.dim]


@pytest.mark.parametrize("name", SMALL)
def test_shapes_follow_from_the_declared_ones(name):
    model = onnx.shape_inference.infer_shapes(models.make(name, batch=4), strict_mode=True)
    onnx.checker.check_model(model, full_check=True)
    assert [value.name for value in model.graph.input] == ["x"]
    assert dims(model.graph.input[0]) == [4, *models.MODELS[name].input_shape]
    assert [value.name for value in model.graph.output] == ["logits"]
    assert dims(model.graph.output[0]) == [4, *LOGITS.get(name, [10])]
    assert [opset.version for opset in model.opset_import] == [17]


@pytest.mark.parametrize("name", [*SMALL, "resnet1202"])
def test_parameter_count_is_the_listed_one(name):
    trainable = [
        array for key, array in initializers(models.make(name)).items() if ".running_" not in key
    ]
    assert sum(array.size for array in trainable) == models.MODELS[name].parameters


@pytest.mark.parametrize(
    ("depth", "convolutions"), [(20, 19 + 2), (32, 31 + 2), (110, 109 + 2), (1202, 1201 + 2)]
)
def test_resnet_has_its_depth_in_layers_and_two_projections(depth, convolutions):
    kinds = Counter(node.op_type for node in models.make(f"resnet{depth}").graph.node)
    assert kinds["Conv"] == kinds["BatchNormalization"] == convolutions
    assert kinds["Gemm"] == 1
    assert kinds["Add"] == (depth - 2) // 2


def test_gpt_has_the_parameters_of_gpt2():
    """By layer: 12 w^2 + 13 w; beside them two tables and the last normalization."""
    for layers, width, context, vocabulary in ((2, 24, 12, 40), (1, 32, 8, 30)):
        sizes = {"context": context, "vocabulary": vocabulary, "width": width}
        model = models.gpt(batch=1, seed=0, layers=layers, heads=2, **sizes)
        block = 12 * width**2 + 13 * width
        expected = layers * block + (context + vocabulary) * width + 2 * width
        assert sum(array.size for array in initializers(model).values()) == expected
    assert (models.MODELS["gpt2"].parameters) == 12 * (12 * 768**2 + 13 * 768) + (
        1024 + 50257
    ) * 768 + 2 * 768


def test_gpt_sees_no_later_token():
    model = models.gpt(batch=1, seed=0, layers=2, width=16, heads=2, context=6, vocabulary=9)
    tokens = np.array([[1, 5, 2, 8, 0, 3]])
    changed = tokens.copy()
    changed[0, 4] = 7
    first, second = (ReferenceEvaluator(model).run(None, {"x": x})[0] for x in (tokens, changed))
    assert first.shape == (1, 9, 6)
    np.testing.assert_array_equal(first[..., :4], second[..., :4])
    assert not np.array_equal(first[..., 4:], second[..., 4:])


def test_unet_keeps_the_size_and_its_widths():
    model = models.unet(batch=2, seed=0, size=32, width=64)
    shapes = {name: array.shape for name, array in initializers(model).items()}
    assert shapes["bottom.conv2.weight"] == (1024, 1024, 3, 3)
    assert shapes["up3.conv.weight"] == (1024, 512, 2, 2)
    assert shapes["up0.conv1.weight"] == (64, 128, 3, 3)
    assert dims(model.graph.output[0]) == [2, 4, 32, 32]


def test_large_images_are_first_made_small():
    model = onnx.shape_inference.infer_shapes(models.resnet50(batch=1, seed=0, size=64))
    shapes = {value.name: dims(value) for value in model.graph.value_info}
    assert shapes["maxpool.out"] == [1, 64, 16, 16]
    assert shapes["layer4.2.relu3.out"] == [1, 2048, 2, 2]


def test_lstm_is_the_recurrence():
    model = models.lstm(batch=2, seed=0, steps=3, features=5, width=4)
    weights = initializers(model)
    x = np.random.default_rng(0).standard_normal((2, 3, 5)).astype("float32")
    hidden, cell = np.zeros((2, 4)), np.zeros((2, 4))
    for row in x.transpose(1, 0, 2):
        gates = row @ weights["lstm1.weight_x"] + hidden @ weights["lstm1.weight_h"]
        i, f, g, o = np.split(gates + weights["lstm1.bias"], 4, axis=1)
        sigmoid = lambda z: 1 / (1 + np.exp(-z))  # noqa: E731
        cell = cell * sigmoid(f) + sigmoid(i) * np.tanh(g)
        hidden = sigmoid(o) * np.tanh(cell)
    expected = hidden @ weights["fc.weight"].T + weights["fc.bias"]
    (found,) = ReferenceEvaluator(model).run(None, {"x": x})
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_numbers_in_names_are_depths():
    assert Counter(n.op_type for n in models.make("mlp7", batch=1).graph.node)["Gemm"] == 8
    assert Counter(n.op_type for n in models.make("resnet14", batch=1).graph.node)["Conv"] == 15


def test_normalization_trains():
    model = models.make("resnet20", batch=2)
    nodes = [node for node in model.graph.node if node.op_type == "BatchNormalization"]
    for node in nodes:
        attributes = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
        assert attributes["training_mode"] == 1
        assert len(node.output) == 3
    # In training mode the reference computes the statistics of the batch itself.
    small = onnx.utils.Extractor(onnx.shape_inference.infer_shapes(model)).extract_model(
        ["x"], ["conv1.out", "bn1.out"]
    )
    x = np.random.default_rng(0).standard_normal((2, 3, 32, 32)).astype("float32")
    y, normal = ReferenceEvaluator(small).run(None, {"x": x})
    mean, var = y.mean((0, 2, 3), keepdims=True), y.var((0, 2, 3), keepdims=True)
    np.testing.assert_allclose(normal, (y - mean) / np.sqrt(var + 1e-5), atol=1e-4)


def test_initializer_names_are_readable():
    names = set(initializers(models.make("resnet20")))
    assert {"conv1.weight", "layer1.0.conv1.weight", "layer3.2.bn2.running_var"} <= names
    assert {"layer2.0.shortcut.conv.weight", "fc.weight", "fc.bias"} <= names


def test_weights_are_he_initialised():
    weight = initializers(models.make("vgg16"))["stage4.1.conv.weight"]
    assert weight.shape == (512, 512, 3, 3)
    assert weight.std() == pytest.approx(math.sqrt(2 / (512 * 9)), rel=0.01)
    assert abs(weight.mean()) < 1e-4


def test_depthwise_convolutions_count_their_own_channel_only():
    weight = initializers(models.make("mobilenet"))["block8.depthwise.weight"]
    assert weight.shape == (512, 1, 3, 3)
    assert weight.std() == pytest.approx(math.sqrt(2 / 9), rel=0.05)


def test_the_seed_decides_the_weights():
    first, again, other = (models.make("mlp", seed=seed).SerializeToString() for seed in (1, 1, 2))
    assert first == again
    assert first != other


def test_no_batch_is_a_symbolic_dimension():
    model = models.make("mlp", batch=None)
    assert dims(model.graph.input[0]) == ["batch", 784]
    assert dims(model.graph.output[0]) == ["batch", 10]


@pytest.mark.parametrize(
    ("name", "batch", "message"),
    [
        ("alexnet", 1, r"unknown model 'alexnet': expected one of mlp, lstm, mobilenet, resnet20"),
        ("resnet21", 1, r"model 'resnet21': the depth of a ResNet is 6n \+ 2"),
        ("resnet2", 1, r"not 2"),
        ("mlp", 0, r"batch 0: expected a positive number"),
    ],
)
def test_bad_requests_name_what_is_wrong(name, batch, message):
    with pytest.raises(UsageError, match=message):
        models.make(name, batch=batch)
