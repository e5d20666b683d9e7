"""Makes the inputs that fuzzing starts from, in tests/fuzz/corpus.

PYTHONPATH=tests/python python tests/fuzz/make_corpus.py
"""

from __future__ import annotations

import gzip
import hashlib
import json
import zipfile
import zlib
from pathlib import Path

import numpy as np
import onnx
from flow_models import rnn
from onnx_models import ModelMaker

import tvm_dtr
from tvm_dtr.models.mlp import mlp
from tvm_dtr.optim import SGD
from tvm_dtr.passes import graph_of_program, plan
from tvm_dtr.program_file import BYTECODE, LIBRARY, manifest_seal
from tvm_dtr.trace.records import Blocks

CORPUS = Path(__file__).parent / "corpus"
BUDGETS = {"bytes": "536870912", "size": " 1.5 GiB", "share": "40%", "none": "none", "auto": "auto"}


def put(target: str, name: str, data: bytes) -> None:
    path = CORPUS / target / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


def network() -> onnx.ModelProto:
    return mlp(batch=512, seed=0, features=6, width=16, hidden_layers=6, classes=3)


def of_a_program() -> None:
    """A program without its code, its manifest, its graph, a plan for it and a trace of it."""
    program = tvm_dtr.build(network(), loss="cross_entropy", optimizer=SGD(lr=0.1, momentum=0.9))
    path = CORPUS / "whole.tdtr"
    program.save(path)
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    path.unlink()
    members |= {BYTECODE: b"bytecode", LIBRARY: b"native code"}
    manifest = json.loads(members.pop("manifest.json"))
    manifest["sha256"] = {name: hashlib.sha256(d).hexdigest() for name, d in members.items()}
    text = json.dumps(manifest, separators=(",", ":")).encode()
    small = CORPUS / "program" / "small.tdtr"
    small.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(small, "w") as archive:
        for name, data in {"manifest.json": text, **members}.items():
            archive.writestr(zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0)), data)
        archive.comment = manifest_seal(text)
    put("manifest", "small.json", text)
    _of_a_run(program)


def _of_a_run(program: tvm_dtr.Program) -> None:
    trace = CORPUS / "run.dtrace"
    vm = tvm_dtr.VirtualMachine(program, memory_budget="90%")
    inputs = {"x": np.ones((512, 6), "float32"), "labels": np.zeros(512, "int64")}
    vm.start_trace(trace)
    for _ in range(2):
        vm.step(**inputs)
    vm.stop_trace(policy=vm.policy)
    data = trace.read_bytes()
    trace.unlink()
    put("events", "run.dtrace", data)
    put("events", "run.dtrace.gz", gzip.compress(data, mtime=0))
    end = 16 + int.from_bytes(data[12:16], "little")
    header = json.loads(zlib.decompress(data[16:end]))
    unchecked = Blocks(data[end:]).records.tobytes()  # or no change would reach the analysis
    put("packed_events", "run", json.dumps(header).encode() + b"\0" + unchecked)
    put("graph", "step.json", json.dumps(header["graph"]).encode())
    schedule = plan(graph_of_program(program), program.unbudgeted_peak_bytes, "dtr")
    put("schedule", "plan.json", schedule.to_json().encode())


def logs() -> None:
    def call(name: str, inputs: list[str], outputs: list[str], alias: int = -1) -> list[dict]:
        sizes = [
            {"INSTRUCTION": kind, "NAME": out, kind: value}
            for out in outputs
            for kind, value in (("MEMORY", "400"), ("ALIAS", str(alias)))
        ]
        made = {"INSTRUCTION": "CALL", "NAME": name, "ARGS": inputs, "RESULT": outputs}
        return [{**made, "TIME": "5"}, *sizes]

    lines = [
        {"INSTRUCTION": "ANNOTATE", "ANNOTATION": "START"},
        {"INSTRUCTION": "CONSTANT", "NAME": "w"},
        {"INSTRUCTION": "MEMORY", "NAME": "w", "MEMORY": "100"},
        *call("f", ["w"], ["a", "b"]),
        *call("reshape", ["a"], ["v"], alias=0),
        {"INSTRUCTION": "COPY", "DST": "c", "SRC": "b"},
        {"INSTRUCTION": "RELEASE", "NAME": "b"},
        *call("g", ["v", "c"], ["d"]),
        {"INSTRUCTION": "MUTATE", "NAME": "add_", "ARGS": ["w", "d"], "MUTATE": [0], "TIME": "7"},
        *call("h", ["a", "d"], ["e"]),
        {"INSTRUCTION": "COPY_FROM", "DST": "c", "SRC": "e"},
        {"INSTRUCTION": "RELEASE", "NAME": "a"},
    ]
    text = "\n".join(json.dumps(line) for line in lines).encode()
    put("log", "small.log", text)
    put("packed_log", "small.log.gz", gzip.compress(text, mtime=0))


def shapes_model() -> onnx.ModelProto:
    """Ops whose operands are shapes, axes and indices."""
    m = ModelMaker()
    x = m.input("x", (2, 6, 4))

    def ints(name: str, *values: int) -> str:
        return m.weight(name, np.array(values, "int64"))

    y = m.node("Reshape", [x, ints("shape", 2, -1, 8)])
    y = m.node("Transpose", [y], perm=[1, 0, 2])
    y = m.node("Slice", [y, ints("starts", 0), ints("ends", 2), ints("axes", 0)])
    y = m.node("Gather", [y, ints("indices", 1, 0)], axis=0)
    y = m.node("Pad", [y, ints("pads", 0, 0, 1, 0, 0, 1)])
    first, second = m.node("Split", [y, ints("split", 4, 6)], outputs=2, axis=2)
    y = m.node("Concat", [first, second], axis=2)
    y = m.node("Tile", [y, ints("repeats", 1, 1, 2)])
    y = m.node("Expand", [y, ints("to", 3, 1, 1, 1)])
    y = m.node("ReduceMean", [y], axes=[2], keepdims=1)
    fill = onnx.helper.make_tensor("v", onnx.TensorProto.FLOAT, [1], [2.0])
    z = m.node("ConstantOfShape", [ints("size", 20, 1)], value=fill)
    y = m.node("MatMul", [y, z])
    y = m.node("Mul", [y, m.weight("scale", np.ones((1,), "float32"))])
    return m.model(y)


def convolution_model() -> onnx.ModelProto:
    m = ModelMaker()
    x = m.input("x", (1, 2, 8, 8))
    y = m.node("Conv", [x, m.weight("k", np.ones((4, 1, 3, 3)))], group=2, pads=[1, 1, 1, 1])
    stats = [m.weight(n, np.ones(4)) for n in ("gamma", "beta", "mean", "var")]
    y = m.node("BatchNormalization", [y, *stats])
    y = m.node("MaxPool", [m.node("Relu", [y])], kernel_shape=[2, 2], strides=[2, 2])
    y = m.node("Resize", [y, "", m.weight("scales", np.array([1, 1, 2, 2], "float32"))])
    y = m.node("AveragePool", [y], kernel_shape=[3, 3], auto_pad="SAME_UPPER")
    y = m.node("Flatten", [m.node("GlobalAveragePool", [y])])
    y = m.node("Gemm", [y, m.weight("w", np.ones((3, 4))), m.weight("b", np.ones(3))], transB=1)
    return m.model(m.node("LogSoftmax", [y], axis=-1))


def recurrent_model() -> onnx.ModelProto:
    m = ModelMaker()
    x = m.input("x", (3, 2, 4))
    weights = [m.weight("w", np.ones((1, 8, 4))), m.weight("r", np.ones((1, 8, 2)))]
    y, *_ = m.node("LSTM", [x, *weights], outputs=3, hidden_size=2)
    y = m.node(
        "Einsum",
        [m.node("Squeeze", [y, m.weight("axis", np.array([1]))]), "e"],
        equation="tbh,hk->tbk",
    )
    m.weight("e", np.ones((2, 2)))
    y = m.node("LayerNormalization", [y, m.weight("g", np.ones(2)), m.weight("c", np.ones(2))])
    return m.model(m.node("Softmax", [y]))


def varying(model: onnx.ModelProto) -> onnx.ModelProto:
    onnx.helper.set_model_props(model, {"tvm_dtr.varying": "time"})
    return model


def main() -> None:
    for name, text in BUDGETS.items():
        put("budget", name, text.encode())
    of_a_program()
    logs()
    models = {
        "mlp": network(),
        "shapes": shapes_model(),
        "convolution": convolution_model(),
        "recurrent": recurrent_model(),
        "loop": varying(rnn(condition=True)),
    }
    for name, model in models.items():
        put("onnx", f"{name}.onnx", model.SerializeToString(deterministic=True))


if __name__ == "__main__":
    main()
