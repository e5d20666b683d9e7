"""Import: names, state, shapes, and one clear line for each bad model."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper
from onnx_models import ModelMaker, compiled

from tvm_dtr.builder import make_training_step
from tvm_dtr.errors import ModelError
from tvm_dtr.frontend import import_model, load_model


def linear(shape=(2, 3)):
    maker = ModelMaker()
    w = maker.weight("w", np.ones((3, 4)))
    return maker.model(maker.node("Gemm", [maker.input("x", shape), w], name="fc"))


def message(call, *args, **kwargs):
    with pytest.raises(ModelError) as caught:
        call(*args, **kwargs)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_not_an_onnx_file(tmp_path):
    path = tmp_path / "cat.onnx"
    path.write_bytes(b"this is no protobuf at all \xff\xff")
    assert "cat.onnx" in message(import_model, path)


@pytest.mark.parametrize("suffix", [".onnx", ".json", ".textproto", ".onnxtxt", ""])
def test_the_suffix_of_a_file_does_not_matter(tmp_path, suffix):
    path = tmp_path / f"model{suffix}"
    path.write_text('{"graph": {}}')
    with pytest.raises(ModelError, match="not an ONNX file") as error:
        load_model(path)
    assert "\n" not in str(error.value) and str(path) in str(error.value)
    maker = ModelMaker()
    model = maker.model(maker.node("Relu", [maker.input("x", [2])]))
    path.write_bytes(model.SerializeToString())
    assert load_model(path) == model


def test_truncated_file(tmp_path):
    path = tmp_path / "half.onnx"
    data = linear().SerializeToString()
    path.write_bytes(data[: len(data) // 2])
    assert "half.onnx" in message(import_model, path)


def test_missing_and_empty_files(tmp_path):
    assert "no such file" in message(import_model, tmp_path / "none.onnx")
    (tmp_path / "empty.onnx").write_bytes(b"")
    assert "empty.onnx" in message(import_model, tmp_path / "empty.onnx")
    assert "directory" in message(import_model, tmp_path)


def test_file_with_external_data(tmp_path):
    onnx.save(
        linear(),
        tmp_path / "m.onnx",
        save_as_external_data=True,
        location="m.bin",
        size_threshold=0,
    )
    assert import_model(tmp_path / "m.onnx").state["w"].shape == (3, 4)
    (tmp_path / "m.bin").unlink()
    assert "external data" in message(import_model, tmp_path / "m.onnx")


def test_dynamic_dimension_needs_a_shape():
    text = message(import_model, linear(["batch", 3]))
    assert "'x'" in text and "axis 0 ('batch')" in text and "--shape x=N,3" in text
    assert import_model(linear(["batch", 3]), {"x": (5, 3)}).inputs[0].shape == (5, 3)


@pytest.mark.parametrize("rows", [2**30, 2**31, 2**32, 2**63 - 1, 10**30])
def test_a_shape_that_no_kernel_can_index_is_refused(rows):
    text = message(import_model, linear(("n", 3)), {"x": (rows, 3)})
    assert f"input 'x' has the shape ({rows}, 3)" in text and "use smaller shapes" in text


def test_a_tensor_that_no_kernel_can_index_is_refused():
    text = message(import_model, linear(("n", 3)), {"x": (2**29, 3)})
    assert "(Gemm) gives tensor 'fc', which has the shape (536870912, 4)" in text


def test_bad_shapes():
    assert "'y'" in message(import_model, linear(), {"y": (2, 3)})
    assert "2 axes, got 3" in message(import_model, linear(), {"x": (2, 3, 4)})
    assert ">= 1" in message(import_model, linear(), {"x": (0, 3)})


def test_unsupported_op_names_node_and_op():
    maker = ModelMaker()
    x = maker.input("x", [2, 3])
    y = maker.node("Det", [x], name="determinant")
    assert "node 'determinant' (Det)" in message(import_model, maker.model(y))


def test_operands_that_do_not_fit():
    text = message(import_model, linear((2, 5)))
    assert "node 'fc' (Gemm)" in text
    maker = ModelMaker()
    x, w = maker.input("x", [1, 4, 8, 8]), maker.weight("w", np.ones((2, 3, 3, 3)))
    text = message(import_model, maker.model(maker.node("Conv", [x, w], name="c")))
    assert "node 'c' (Conv)" in text and "3 input channels, got 4" in text


def test_dead_nodes_are_ignored():
    maker = ModelMaker()
    x = maker.input("x", [2, 3])
    maker.node("Det", [x])
    assert import_model(maker.model(maker.node("Relu", [x], name="y"))).outputs[0][0] == "y"


def dropout_model(ratio, size=4096):
    maker = ModelMaker(dtype="float64")
    w, r = maker.weight("w", np.ones(size)), maker.weight("r", np.array(ratio))
    return maker.model(maker.node("Dropout", [w, r], name="y"))


def test_dropout_draws_a_new_mask_each_step_and_the_same_for_the_gradient():
    run = compiled(dropout_model(0.25))
    masks = []
    for _ in range(3):
        got = run(target=np.zeros(4096))
        run.state["random_key"] = got["random_key"]
        assert set(np.unique(got["y"])) == {0.0, 1 / 0.75}
        assert abs(np.mean(got["y"] == 0) - 0.25) < 0.03
        np.testing.assert_allclose(got["grad:w"], 2 * got["y"] * got["y"] / 4096)
        masks.append(got["y"] != 0)
    agree = np.mean(masks[0] == masks[1]), np.mean(masks[1] == masks[2])
    assert all(abs(a - (0.75**2 + 0.25**2)) < 0.04 for a in agree)
    run.state["random_key"] = np.zeros(2, "uint32")
    np.testing.assert_array_equal(run(target=np.zeros(4096))["y"] != 0, masks[0])


def test_dropout_ratios():
    assert "ratio 1" in message(import_model, dropout_model(1.0))
    assert "random_key" not in import_model(dropout_model(0.0)).state


def test_weight_listed_as_input_is_a_parameter():
    model = linear()
    model.graph.input.append(helper.make_tensor_value_info("w", onnx.TensorProto.FLOAT, [3, 4]))
    imported = import_model(model)
    assert [i.name for i in imported.inputs] == ["x"] and imported.parameter_names == ["w"]


def test_constant_node_in_a_weight_slot_is_a_parameter():
    maker = ModelMaker()
    x = maker.input("x", [2, 3])
    w = maker.node(
        "Constant", [], name="kernel", value=onnx.numpy_helper.from_array(np.ones((3, 4), "f4"))
    )
    half = maker.node("Constant", [], name="half", value_float=0.5)
    y = maker.node("Mul", [maker.node("Gemm", [x, w]), half])
    imported = import_model(maker.model(y))
    assert imported.parameter_names == ["kernel"] and list(imported.state) == ["kernel"]


def test_shapes_computed_in_the_graph_are_folded():
    maker = ModelMaker()
    x = maker.input("x", ["n", 3, 4])
    size = maker.node("Shape", [x])
    rows = maker.node("Gather", [size, maker.weight("i", np.array([0]))])
    target = maker.node("Concat", [rows, maker.weight("m", np.array([-1]))], axis=0)
    model = maker.model(maker.node("Reshape", [x, target], name="y"))
    ((_, y),) = import_model(model, {"x": (5, 3, 4)}).outputs
    assert tuple(y.checked_type.shape) == (5, 12)


def batch_norm(maker, x, mean, var, **attrs):
    scale = [maker.weight(f"{mean}.{p}", np.full(3, v)) for p, v in (("g", 1.5), ("b", 0.5))]
    return maker.node("BatchNormalization", [x, *scale, mean, var], **attrs)


def test_running_statistics_follow_the_batch():
    maker = ModelMaker(dtype="float64")
    x = maker.input("x", [4, 3, 2, 2])
    mean, var = maker.weight("mean", np.zeros(3)), maker.weight("var", np.ones(3))
    run = compiled(maker.model(batch_norm(maker, x, mean, var, momentum=0.75)), loss="mse")
    data = np.random.default_rng(0).normal(size=(4, 3, 2, 2)) * 3 + 1
    got = run(x=data, target=np.zeros_like(data))
    np.testing.assert_allclose(got["mean"], 0.25 * data.mean((0, 2, 3)))
    np.testing.assert_allclose(got["var"], 0.75 + 0.25 * data.var((0, 2, 3)))
    assert run.step.parameter_names == ["mean.g", "mean.b"]


def test_merged_statistics_are_split_and_tied_weights_are_not():
    maker = ModelMaker()
    x = maker.input("x", [4, 3])
    mean, var = maker.weight("m0", np.zeros(3)), maker.weight("v0", np.ones(3))
    y = batch_norm(maker, x, mean, var)
    same = [maker.node("Identity", [n], name=name) for n, name in ((mean, "m1"), (var, "v1"))]
    y = batch_norm(maker, y, *same)
    w = maker.weight("w", np.arange(9.0).reshape(3, 3))
    y = maker.node("MatMul", [maker.node("MatMul", [y, w]), maker.node("Identity", [w])])
    imported = import_model(maker.model(y))
    assert set(imported.running_updates) == {"m0", "v0", "m1", "v1"}
    assert [n for n in imported.parameter_names if n.startswith("w")] == ["w"]


def test_sources_lead_back_to_nodes():
    step = make_training_step(linear(), loss="mse")
    assert step.sources == {"node 'fc' (Gemm)": ("fc", "Gemm")}
    assert "span=node 'fc' (Gemm)" in step.function.astext(show_meta_data=False)


def test_a_network_inside_the_onnx_package():
    """Its weights are ConstantOfShape nodes."""
    path = Path(onnx.__file__).parent / "backend/test/data/light/light_squeezenet.onnx"
    imported = import_model(path)
    assert len(imported.parameter_names) == 52
    assert sum(imported.state[name].size for name in imported.parameter_names) == 1235496


def test_tensors_without_elements_are_refused():
    maker = ModelMaker()
    x = maker.input("x", [4, 3])
    y = maker.node("Add", [x, maker.weight("w", np.zeros((0, 3)))])
    text = message(import_model, maker.model(y))
    assert "tensor 'w' has the shape (0, 3), which holds no element" in text

    maker = ModelMaker()
    x = maker.input("x", [4, 3])
    sizes = maker.weight("sizes", np.array([0, 3]))
    parts = maker.node("Split", [x, sizes], outputs=2, name="cut", axis=1)
    text = message(import_model, maker.model(*parts))
    assert "node 'cut' (Split)" in text and "no element" in text

    maker = ModelMaker()
    model = maker.model(maker.node("Relu", [maker.input("x", [4, 3])]))
    text = message(import_model, model, shapes={"x": (0, 3)})
    assert "input 'x' needs sizes >= 1, got (0, 3)" in text


def test_an_empty_part_adds_nothing_to_a_concatenation():
    maker = ModelMaker()
    x = maker.weight("x", np.arange(6.0).reshape(2, 3))
    empty = maker.weight("empty", np.zeros((0, 3)))
    model = maker.model(maker.node("Concat", [empty, x], name="y", axis=0))
    got = compiled(model)(target=np.zeros((2, 3), "float32"))
    np.testing.assert_array_equal(got["y"], np.arange(6).reshape(2, 3))
