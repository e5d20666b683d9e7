"""Whole training steps against PyTorch: loss, every gradient, running statistics."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx_models import ModelMaker, compiled
from tvm import relay

from tvm_dtr.autodiff import gradients
from tvm_dtr.builder import make_training_step
from tvm_dtr.errors import ModelError, UsageError
from tvm_dtr.optim import SGD
from tvm_dtr.relay_graph import infer_local, stamp

DATA = Path(__file__).parent.parent / "data"


def assert_close(actual, expected, tolerance=1e-4):
    """Within ``tolerance`` of the expected tensor's largest element."""
    scale = max(float(np.max(np.abs(expected))), 1e-3)
    np.testing.assert_allclose(actual, expected, rtol=0, atol=tolerance * scale)


@pytest.mark.parametrize("name", ["depthwise", "convs"])
def test_step_equals_pytorch(name):
    golden = np.load(DATA / f"torch_{name}.npz")
    model = onnx.load(DATA / f"torch_{name}.onnx")
    run = compiled(model, loss="cross_entropy")
    got = run(x=golden["x"], labels=golden["labels"])
    assert abs(float(got["loss"]) - float(golden["loss"])) < 1e-5
    wanted = {k for k in golden if k.startswith("grad:")}
    assert wanted == {k for k in got if k.startswith("grad:")}
    for key in sorted(wanted):
        assert_close(got[key], golden[key])
    statistics = {k for k in golden if "running" in k}
    assert statistics == {r.name for r in run.step.results if r.kind == "state"}
    for key in sorted(statistics):
        assert_close(got[key], as_onnx(key, golden, model))


def as_onnx(key, golden, model):
    """PyTorch's running variance uses the unbiased variance of the batch, ONNX's the biased."""
    if not key.endswith("running_var"):
        return golden[key]
    elements = int(batch_elements(model, key, golden["x"]))
    batch = (golden[key] - 0.9) / 0.1
    return 0.9 + 0.1 * batch * (elements - 1) / elements


def batch_elements(model, key, x):
    """Elements per channel of the batch normalization that updates ``key``."""
    model = onnx.ModelProto.FromString(model.SerializeToString())
    origin = {n.output[0]: n.input[0] for n in model.graph.node if n.op_type == "Identity"}
    names = (key, key.replace("running_var", "weight"))
    (node,) = (
        n
        for n in model.graph.node
        if n.op_type == "BatchNormalization" and set(names) & set(n.input)
    )
    del model.graph.output[:]
    model.graph.output.append(onnx.ValueInfoProto(name=node.input[0]))
    assert origin is not None
    (value,) = onnx.reference.ReferenceEvaluator(model).run(None, {"x": x})
    return value.size / value.shape[1]


def mlp(batch=6):
    rng = np.random.default_rng(3)
    maker = ModelMaker()
    x = maker.input("x", [batch, 5])
    h = maker.node(
        "Gemm", [x, maker.weight("w1", rng.normal(size=(5, 8))), maker.weight("b1", np.zeros(8))]
    )
    h = maker.node("Relu", [h])
    y = maker.node("Gemm", [h, maker.weight("w2", rng.normal(size=(8, 3)))], name="logits")
    return maker.model(y)


def test_order_and_names_of_results():
    step = make_training_step(mlp(), loss="cross_entropy", optimizer=SGD(0.1))
    assert [(r.name, r.kind) for r in step.results] == [
        ("loss", "output"),
        ("logits", "output"),
        ("w2", "state"),
        ("b1", "state"),
        ("w1", "state"),
    ]
    assert [s.name for s in step.inputs] == ["x", "labels", "lr"]
    assert [s.name for s in step.state] == ["w1", "b1", "w2"] == step.parameter_names
    names = [p.name_hint for p in step.function.params]
    assert names == ["x", "labels", "lr", "w1", "b1", "w2"]
    assert ("gemm0", "Gemm") in step.sources.values()


def test_training_lowers_the_loss():
    rng = np.random.default_rng(0)
    run = compiled(mlp(), loss="cross_entropy", optimizer=SGD(0.05))
    feeds = {"x": rng.normal(size=(6, 5)).astype("float32"), "labels": rng.integers(0, 3, 6)}
    losses = []
    for _ in range(30):
        got = run(**feeds)
        losses.append(float(got["loss"]))
        run.state.update({n: got[n] for n in run.step.parameter_names})
    assert losses[-1] < 0.2 * losses[0]


def test_no_gradient_flows_to_what_is_not_trained():
    step = make_training_step(mlp(), loss="cross_entropy")
    text = step.function.astext(show_meta_data=False)
    # dense: two forward, dw1, dw2 and dx of the second layer; none for the input of the first.
    assert text.count("nn.dense(") == 5


def test_unknown_loss_lists_the_valid_ones():
    with pytest.raises(UsageError, match=r"'hinge'.*cross_entropy, mse, output"):
        make_training_step(mlp(), loss="hinge")


def test_unknown_optimizer():
    with pytest.raises(UsageError, match="unknown optimizer 'adagrad'"):
        make_training_step(mlp(), loss="mse", optimizer="adagrad")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"model": 7}, "model is a int, expected the path of an ONNX file"),
        ({"model": b"bytes"}, "model is a bytes"),
        ({"model": None}, "model is a NoneType"),
        ({"loss": ["mse"]}, r"unknown loss \['mse'\]"),
        ({"loss": None}, "unknown loss None"),
        ({"optimizer": SGD}, "optimizer is the class SGD, expected an object of it"),
        ({"optimizer": 0.1}, "unknown optimizer 0.1"),
        ({"shapes": [4, 5]}, r"shapes is \[4, 5\], expected a mapping"),
        ({"shapes": {"x": 4}}, "expected a mapping of names to whole numbers"),
        ({"shapes": {"x": (6.5, 5)}}, "expected a mapping of names to whole numbers"),
        ({"shapes": {"x": "65"}}, "expected a mapping of names to whole numbers"),
    ],
    ids=str,
)
def test_an_argument_of_a_wrong_kind_is_named(arguments, message):
    with pytest.raises(UsageError, match=message) as error:
        make_training_step(**{"model": mlp(), "loss": "mse", **arguments})
    assert "\n" not in str(error.value)


def test_model_without_parameters():
    maker = ModelMaker()
    model = maker.model(maker.node("Relu", [maker.input("x", [2, 3])]))
    with pytest.raises(ModelError, match="no parameter"):
        make_training_step(model, loss="mse")


def test_op_without_gradient_names_the_node():
    x = infer_local(relay.var("x", shape=(2, 3)))
    (y,) = stamp([relay.log2(x)], [x], "node 'squash' (Log2)")
    with pytest.raises(ModelError, match=r"'squash' \(Log2\).*no gradient"):
        gradients(infer_local(y), infer_local(relay.var("dy", shape=(2, 3))), [x])


def named(output="y", weight="w", given="x", **options):
    """The step of y = x * w with other names."""
    maker = ModelMaker()
    x, w = maker.input(given, [2, 3]), maker.weight(weight, np.ones((2, 3)))
    model = maker.model(maker.node("Mul", [x, w], name=output))
    return make_training_step(model, **{"loss": "mse", **options})


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ({"output": "loss"}, "output 'loss' and the step's loss needs"),
        ({"weight": "loss"}, "tensor 'loss'; the step's loss needs"),
        ({"given": "loss"}, "tensor 'loss'; the step's loss needs"),
        ({"given": "target"}, "tensor 'target'; the loss needs that name"),
        ({"output": "grad:w"}, "output 'grad:w'; the gradient needs that name"),
        (
            {"given": "momentum:w", "optimizer": SGD(0.1, momentum=0.9)},
            "tensor 'momentum:w'; the optimizer needs that name",
        ),
    ],
    ids=str,
)
def test_a_name_that_the_step_needs_is_refused(names, message):
    with pytest.raises(ModelError, match=message):
        named(**names)


def test_names_that_do_not_clash_pass():
    assert named(output="grad:w", optimizer=SGD(0.1)).results[1].name == "grad:w"
    maker = ModelMaker()
    w = maker.weight("w", np.ones((2, 3)))
    model = maker.model(maker.node("ReduceMean", [w], name="loss", keepdims=0))
    assert [r.name for r in make_training_step(model, loss="output").results] == ["loss", "grad:w"]


def test_an_output_given_twice_is_refused():
    maker = ModelMaker()
    y = maker.node("Relu", [maker.weight("w", np.ones((2, 3)))])
    with pytest.raises(ModelError, match="several outputs called 'relu0'"):
        make_training_step(maker.model(y, y), loss="mse")


def test_a_second_output_called_loss_is_refused():
    maker = ModelMaker()
    w = maker.weight("w", np.ones((2, 3)))
    first = maker.node("ReduceMean", [w], keepdims=0)
    model = maker.model(first, maker.node("ReduceSum", [w], name="loss", keepdims=0))
    with pytest.raises(ModelError, match="output 'loss'"):
        make_training_step(model, loss="output")


def test_a_weight_that_is_also_a_running_statistic_is_refused():
    maker = ModelMaker()
    x = maker.input("x", [2, 3, 4, 4])
    one = [maker.weight(name, np.ones(3)) for name in ("scale", "bias", "var")]
    normal = maker.node(
        "BatchNormalization", [x, one[0], one[1], "scale", one[2]], outputs=3, training_mode=1
    )
    with pytest.raises(ModelError, match="trains 'scale' and uses it as a running statistic"):
        make_training_step(maker.model(normal[0]), loss="mse", optimizer=SGD(0.1))


def test_several_inputs_of_one_name_are_refused():
    maker = ModelMaker()
    x = maker.input("x", [2, 3])
    maker.input("x", [2, 3])
    y = maker.node("Mul", [x, maker.weight("w", np.ones((2, 3)))])
    with pytest.raises(ModelError, match="several inputs called 'x'"):
        make_training_step(maker.model(y), loss="mse")


def test_a_tensor_with_the_name_of_the_random_key_is_refused():
    maker = ModelMaker()
    w = maker.weight("random_key", np.ones((2, 3)))
    ratio, training = maker.weight("r", np.array(0.5)), maker.weight("t", np.array(True))
    model = maker.model(maker.node("Dropout", [w, ratio, training]))
    with pytest.raises(ModelError, match="tensor 'random_key'; dropout needs that name"):
        make_training_step(model, loss="mse")
