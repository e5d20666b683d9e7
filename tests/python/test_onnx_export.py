"""Trained models as ONNX: names, checker, and ONNX Runtime's outputs against ours."""

from pathlib import Path

import numpy as np
import onnx
import pytest
import training_run
from onnx_models import ModelMaker

import tvm_dtr
from tvm_dtr.errors import ModelError
from tvm_dtr.evaluation import Evaluator
from tvm_dtr.onnx_export import strip_weights, with_weights

DATA = Path(__file__).parent.parent / "data"


def runtime_outputs(model, **inputs):
    onnxruntime = pytest.importorskip("onnxruntime", reason="ONNX Runtime is not installed")
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(names, inputs), strict=True))


@pytest.fixture(scope="module")
def trained():
    run = training_run.trainer(training_run.program(), epochs=4)
    run.run()
    return run


def test_the_graph_stays_and_the_weights_are_the_trained_ones(trained):
    model = trained.program.to_onnx(trained.vm.parameters)
    onnx.checker.check_model(model, full_check=True)
    assert [n.op_type for n in model.graph.node] == [
        n.op_type for n in training_run.network().graph.node
    ]
    assert [o.name for o in model.graph.output] == ["y"]
    weights = {t.name: onnx.numpy_helper.to_array(t) for t in model.graph.initializer}
    assert {"w1", "w2", "scale", "bias", "mean", "var"} <= set(weights)
    for name in weights.keys() & dict(trained.vm.parameters).keys():
        assert weights[name].tobytes() == trained.vm.parameters[name].tobytes()
    assert not np.array_equal(weights["mean"], np.zeros(8))


def test_onnx_runtime_gives_the_outputs_of_evaluation(trained):
    x = training_run.data()["x"][:4]
    ours = tvm_dtr.VirtualMachine(trained.program.evaluation)
    ours.share_state(trained.vm)
    theirs = runtime_outputs(trained.program.to_onnx(trained.vm.parameters), x=x)
    np.testing.assert_allclose(ours.step(x=x)["y"], theirs["y"], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["resnet.dynamo", "vit.torchscript"])
def test_models_that_pytorch_exported(name):
    step = tvm_dtr.make_training_step(DATA / "exports" / f"{name}.onnx", loss="cross_entropy")
    values = {
        k: v + np.float32(0.01) for k, v in step.initial_state.items() if v.dtype == "float32"
    }
    from tvm_dtr.onnx_export import trained_model

    model = trained_model(step.source.graph, step.initial_state | values)
    onnx.checker.check_model(model, full_check=True)
    rng = np.random.default_rng(0)
    feeds = {}
    for spec in step.inputs:
        if spec.name != "labels":
            high = 2 if spec.dtype.startswith("int") else None
            drawn = rng.normal(size=spec.shape) if high is None else rng.integers(0, 2, spec.shape)
            feeds[spec.name] = drawn.astype(spec.dtype)
    from onnx_models import CompiledStep

    from tvm_dtr.builder import make_evaluation_step

    ours = CompiledStep(make_evaluation_step(model))(**feeds)
    theirs = runtime_outputs(model, **feeds)
    for output, value in theirs.items():
        np.testing.assert_allclose(ours[output], value, rtol=2e-4, atol=2e-4)


def test_programs_keep_the_graph_without_the_weights(tmp_path, trained):
    trained.program.save(tmp_path / "p.tdtr")
    loaded = tvm_dtr.load(tmp_path / "p.tdtr")
    assert loaded.to_onnx(trained.vm.parameters) == trained.program.to_onnx(trained.vm.parameters)
    bare = onnx.load_model_from_string(loaded.source.graph)
    assert not any(t.raw_data for t in bare.graph.initializer if t.name == "w1")
    loaded.source = None
    with pytest.raises(ModelError, match="does not hold the ONNX graph"):
        loaded.to_onnx()


def test_weights_that_nodes_made_become_initializers():
    maker = ModelMaker()
    maker.weight("zeros", np.zeros(3))
    bias = maker.node("Identity", ["zeros"], name="b")
    y = maker.node(
        "Gemm", [maker.input("x", (2, 4)), maker.weight("w", np.ones((4, 3))), bias], name="y"
    )
    model = maker.model(y)
    step = tvm_dtr.make_training_step(model, loss="mse")
    assert "b" in step.initial_state
    values = {"w": np.ones((4, 3), "float32"), "b": np.full(3, 5, "float32")}
    back = with_weights(strip_weights(model, step.initial_state), values)
    assert [n.op_type for n in back.graph.node] == ["Gemm"]
    out = runtime_outputs(back, x=np.zeros((2, 4), "float32"))
    assert np.array_equal(out["y"], np.full((2, 3), 5))
    with pytest.raises(ModelError, match="no value for the tensor 'w'"):
        with_weights(strip_weights(model, {"w"}), {})


@pytest.mark.parametrize("budget", [None, "512KiB"])
def test_evaluation_counts_each_sample_once(trained, budget):
    data = training_run.data()
    data = {name: array[:18] for name, array in data.items()}
    vm = tvm_dtr.VirtualMachine(trained.program, memory_budget=budget)
    vm.set_parameters(dict(trained.vm.parameters))
    old = vm.counters()["budget_bytes"]

    def first_logit(outputs, inputs):
        return outputs["y"][:, 0]

    evaluate = Evaluator(trained.program, data, ["loss", "accuracy", "perplexity", first_logit])
    got = evaluate(vm)
    logits = np.concatenate(
        [
            runtime_outputs(trained.program.to_onnx(vm.parameters), x=data["x"][i : i + 4])["y"]
            for i in (0, 4, 8, 12, 14)
        ]
    )
    logits = np.concatenate([logits[:16], logits[18:]])
    shifted = logits - logits.max(1, keepdims=True)
    losses = np.log(np.exp(shifted).sum(1)) - shifted[np.arange(18), data["labels"]]
    assert np.isclose(got["loss"], losses.mean(), rtol=1e-5)
    assert np.isclose(got["perplexity"], np.exp(losses.mean()), rtol=1e-5)
    assert got["accuracy"] == (logits.argmax(1) == data["labels"]).mean()
    assert np.isclose(got["first_logit"], logits[:, 0].mean(), rtol=1e-4)
    assert vm.counters()["budget_bytes"] == old
    vm.step(x=data["x"][:4], labels=data["labels"][:4])


def test_unknown_metrics_are_refused(trained):
    with pytest.raises(tvm_dtr.UsageError, match="unknown metric 'f1'"):
        Evaluator(trained.program, training_run.data(), ["f1"])
