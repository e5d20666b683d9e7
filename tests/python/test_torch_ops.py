"""The gradient of every operator in float32 against PyTorch's.

Many nodes make one model: their results, one after the other, are its output.
"""

import json
import math
from functools import lru_cache
from pathlib import Path

import numpy as np
import pytest
from onnx_models import ModelMaker, compiled
from test_builder import assert_close

DATA = Path(__file__).parent.parent / "data" / "torch_ops.npz"
AT_A_TIME = 17


@lru_cache
def goldens():
    file = np.load(DATA)
    return file["numbers"], json.loads(str(file["cases"]))


def array(stored):
    if "data" in stored:
        return np.array(stored["data"], stored["kind"])
    count = math.prod(stored["shape"])
    return goldens()[0][stored["at"] : stored["at"] + count].reshape(stored["shape"])


def add_node(maker, name, case):
    """The node with its float operands as parameters; its first result as a vector."""
    operands = [array(o) for o in case["operands"]]
    names = [
        "" if data.shape == (0,) else maker.weight(f"{name}/{i}", data)
        for i, data in enumerate(operands)
    ]
    results = maker.node(case["op"], names, outputs=case["outputs"], name=name, **case["attrs"])
    first = results if case["outputs"] == 1 else results[0]
    return maker.node("Reshape", [first, maker.weight("flat", np.array([-1]))])


@pytest.mark.parametrize("part", range(6))
def test_gradients_equal_pytorch(part):
    cases = dict(list(goldens()[1].items())[part * AT_A_TIME : (part + 1) * AT_A_TIME])
    maker = ModelMaker(opset=21)
    rows = [add_node(maker, name, case) for name, case in cases.items()]
    run = compiled(maker.model(maker.node("Concat", rows, name="all", axis=0)))
    y = np.concatenate([array(case["y"]).ravel() for case in cases.values()])
    weights = np.concatenate([array(case["weights"]).ravel() for case in cases.values()])
    # The mean squared distance to this target has the weights as its gradient.
    got = run(target=y - weights * np.float32(y.size / 2))
    assert_close(got["all"], y)
    compared = 0
    for name, case in cases.items():
        for i, grad in enumerate(case["grads"]):
            if grad is not None:
                assert_close(got[f"grad:{name}/{i}"], array(grad))
                compared += 1
    assert compared >= len(cases)


def test_all_cases_are_run():
    assert 5 * AT_A_TIME < len(goldens()[1]) <= 6 * AT_A_TIME
