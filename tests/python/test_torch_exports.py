"""Networks as PyTorch's two exporters write them: loss, gradients, statistics, ten SGD steps."""

from pathlib import Path

import numpy as np
import pytest
from test_builder import assert_close

import tvm_dtr

DATA = Path(__file__).parent.parent / "data" / "exports"
NAMES = ["resnet", "densenet", "unet", "mobilenet", "gpt", "bert", "vit", "lstm", "groupnorm"]


@pytest.mark.parametrize("exporter", ["torchscript", "dynamo"])
@pytest.mark.parametrize("name", NAMES)
def test_training_follows_pytorch(name, exporter):
    golden = np.load(DATA / f"{name}.npz")
    path = DATA / f"{name}.{exporter}.onnx"
    vm = tvm_dtr.VirtualMachine(tvm_dtr.build(path, loss="cross_entropy"))
    feeds = {"x": golden["x"], "labels": golden["labels"]}
    wanted = {k for k in golden if k.startswith("grad:")}
    for step, loss in enumerate(golden["losses"]):
        got = vm.step(**feeds)
        assert abs(float(got["loss"]) - loss) < (1e-5 if step == 0 else 1e-4), step
        if step == 0:
            assert wanted == {k for k in got if k.startswith("grad:")}
            for key in sorted(wanted):
                assert_close(got[key], golden[key])
            for key in (k for k in golden if "running" in k):
                assert_close(vm.parameters[key], golden[key])
        for key in wanted:
            parameter = key.removeprefix("grad:")
            vm.parameters[parameter] = vm.parameters[parameter] - np.float32(0.02) * got[key]
