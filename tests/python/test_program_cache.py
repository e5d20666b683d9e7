"""tvm_dtr/program_cache.py: what was built before is read, and nothing else."""

import numpy as np
import onnx
import pytest

import tvm_dtr
from tvm_dtr import models, program_cache
from tvm_dtr.program_cache import program_key

OPTIONS = {"loss": "cross_entropy", "optimizer": tvm_dtr.SGD(lr=0.1), "shapes": None}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("TVM_DTR_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture(scope="module")
def model():
    return models.mlp(batch=4, seed=0, features=6, width=8, hidden_layers=1)


def key(model, **changes):
    return program_key(model, {**OPTIONS, **changes}, "llvm")


def built(model, **options):
    """The program and what its build did."""
    done = []
    program = tvm_dtr.build(model, **OPTIONS, progress=lambda *call: done.append(call), **options)
    return program, done


def test_second_build_only_reads(folder, model):
    first, work = built(model)
    assert len(work) > 3
    second, work = built(model)
    assert work == []
    assert first.graph == second.graph
    for name, array in first.initial_state.items():
        np.testing.assert_array_equal(array, second.initial_state[name])
    x = np.ones((4, 6), "float32")
    losses = [
        tvm_dtr.VirtualMachine(p).step(x=x, labels=np.zeros(4, int))["loss"].tobytes()
        for p in (first, second)
    ]
    assert losses[0] == losses[1]


def test_a_damaged_program_is_built_again(folder, model):
    built(model)
    path = max(folder.glob("*/*"), key=lambda file: file.stat().st_mtime_ns)  # it came last
    path.write_bytes(path.read_bytes()[:-10])
    assert built(model)[1] != []
    assert built(model)[1] == []


def test_no_cache_no_program(monkeypatch, model):
    monkeypatch.setenv("TVM_DTR_CACHE_DIR", "none")
    assert built(model)[1] != []
    assert built(model)[1] != []


def test_large_programs_are_not_kept(folder, model, monkeypatch):
    monkeypatch.setenv("TVM_DTR_CACHE_SIZE", "40KiB")
    built(model)
    assert all(file.stat().st_size <= 40 * 1024 for file in folder.glob("*/*"))
    assert built(model)[1] != []


def test_all_that_a_program_depends_on_is_in_its_key(model, monkeypatch):
    other = onnx.ModelProto()
    other.CopyFrom(model)
    other.graph.initializer[0].raw_data = bytes(len(other.graph.initializer[0].raw_data))
    keys = [
        key(model),
        key(other),
        key(model, loss="mse"),
        key(model, optimizer=None),
        key(model, optimizer=tvm_dtr.SGD(lr=0.2)),
        key(model, optimizer=tvm_dtr.SGD(lr=0.1, momentum=0.5)),
        key(model, shapes={"x": (4, 6)}),
        program_key(model, OPTIONS, "llvm -mcpu=x86-64"),
    ]
    monkeypatch.setattr(program_cache, "_package_digest", lambda: "changed")
    keys.append(key(model))
    assert None not in keys
    assert len(set(keys)) == len(keys)
    monkeypatch.undo()
    assert key(model, optimizer=tvm_dtr.SGD(lr=0.1)) == keys[0], "equal options, equal keys"


def test_weights_beside_the_file_count(tmp_path, model):
    path = tmp_path / "m.onnx"
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    onnx.save(copy, path, save_as_external_data=True, location="w.bin", size_threshold=0)
    first = key(path)
    weights = tmp_path / "w.bin"
    weights.write_bytes(weights.read_bytes()[:-1] + b"\1")
    assert None not in (first, key(path)) and key(path) != first


@pytest.mark.parametrize("option", [lambda: 1, object()])
def test_what_no_text_tells_is_not_cached(model, option):
    assert key(model, optimizer=option) is None
    assert key("no such file") is None


def _renamed(model):
    model.graph.initializer[0].name += "x"


def _as_floats(model):
    tensor = model.graph.initializer[0]
    tensor.float_data.extend(onnx.numpy_helper.to_array(tensor).ravel() + 1)
    tensor.ClearField("raw_data")


def _shifted(model):
    """The bytes of two weights are divided between them in another way."""
    one, other = model.graph.initializer[:2]
    one.raw_data, other.raw_data = one.raw_data + other.raw_data[:4], other.raw_data[4:]


@pytest.mark.parametrize(
    "change",
    [
        _renamed,
        _as_floats,
        _shifted,
        lambda m: m.graph.initializer[0].dims.reverse(),
        lambda m: setattr(m.graph.node[0], "name", "another"),
        lambda m: m.graph.node[0].attribute.add(name="alpha", f=2.0, type=1),
        lambda m: setattr(m.opset_import[0], "version", 9),
        lambda m: setattr(m, "producer_name", "another"),
        lambda m: m.metadata_props.add(key="a", value="b"),
        lambda m: setattr(m.graph.output[0], "name", "another"),
    ],
)
def test_any_change_of_a_model_in_memory_changes_its_key(model, change):
    other = onnx.ModelProto()
    other.CopyFrom(model)
    change(other)
    assert key(other) != key(model)
