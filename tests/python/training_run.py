"""A small network with momentum, dropout and running statistics, and runs that train it."""

from __future__ import annotations

import sys

import numpy as np
from onnx_models import ModelMaker

import tvm_dtr

COUNT, BATCH = 20, 4


def network():
    rng = np.random.default_rng(0)
    maker = ModelMaker()
    h = maker.node(
        "Gemm", [maker.input("x", (BATCH, 6)), maker.weight("w1", rng.normal(size=(6, 8)))]
    )
    scale, bias = maker.weight("scale", np.ones(8)), maker.weight("bias", np.zeros(8))
    mean, var = maker.weight("mean", np.zeros(8)), maker.weight("var", np.ones(8))
    h, *_ = maker.node("BatchNormalization", [h, scale, bias, mean, var], 3, training_mode=1)
    h = maker.node("Relu", [h])
    ratio, training = maker.weight("ratio", np.float32(0.2)), maker.weight("on", np.array(True))
    h = maker.node("Dropout", [h, ratio, training])
    y = maker.node("Gemm", [h, maker.weight("w2", rng.normal(size=(8, 3)))], name="y")
    model = maker.model(y)
    shape = model.graph.output[0].type.tensor_type.shape
    for extent in (BATCH, 3):
        shape.dim.add().dim_value = extent
    return model


def program():
    return tvm_dtr.build(network(), loss="cross_entropy", optimizer=tvm_dtr.AdamW(lr=0.01))


def data():
    rng = np.random.default_rng(1)
    x = rng.normal(size=(COUNT, 6)).astype("float32")
    return {"x": x, "labels": (x[:, 0] > 0).astype("int64") + (x[:, 1] > 1)}


def trainer(built, folder=None, **options):
    vm = tvm_dtr.VirtualMachine(built)
    options.setdefault("epochs", 3)
    return tvm_dtr.Trainer(vm, data(), checkpoint_dir=folder, seed=5, **options)


def same_bits(one, two):
    assert list(one) == list(two)
    for name in one:
        assert one[name].tobytes() == two[name].tobytes(), name


def main(program_file: str, folder: str) -> None:
    """A run in a process of its own, for tests that kill it."""
    run = trainer(tvm_dtr.load(program_file), folder, checkpoint_every=2, epochs=40)
    run.run(resume=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
