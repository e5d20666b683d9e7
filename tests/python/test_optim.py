"""Optimizers against NumPy, by the definitions of PyTorch."""

import numpy as np
import pytest
from onnx_models import ModelMaker, compiled

from tvm_dtr.errors import UsageError
from tvm_dtr.optim import SGD


def steps(optimizer, count=4):
    """The parameter after each of ``count`` steps on mean((w - target)^2), and the gradients."""
    maker = ModelMaker(dtype="float64")
    w = maker.weight("w", np.linspace(-1, 1, 6))
    run = compiled(maker.model(maker.node("Identity", [w], name="y")), optimizer=optimizer)
    seen = [run.state["w"]]
    for _ in range(count):
        got = run(target=np.zeros(6))
        run.state.update({r.name: got[r.name] for r in run.step.results if r.kind == "state"})
        seen.append(got["w"])
    return seen


def expected(lr, momentum=0.0, weight_decay=0.0, nesterov=False, count=4):
    w, velocity, seen = np.linspace(-1, 1, 6), None, [np.linspace(-1, 1, 6)]
    for _ in range(count):
        g = 2 * w / 6 + weight_decay * w
        velocity = g if velocity is None else momentum * velocity + g
        w = w - lr * ((g + momentum * velocity) if nesterov else velocity if momentum else g)
        seen.append(w)
    return seen


@pytest.mark.parametrize(
    "options",
    [
        {"lr": 0.3},
        {"lr": 0.3, "momentum": 0.9},
        {"lr": 0.3, "momentum": 0.9, "weight_decay": 0.1, "nesterov": True},
    ],
)
def test_sgd(options):
    np.testing.assert_allclose(steps(SGD(**options)), expected(**options), rtol=1e-12)


@pytest.mark.parametrize(
    "options",
    [
        {"lr": -1},
        {"lr": float("nan")},
        {"lr": 1, "nesterov": True},
        {"lr": "0.1"},
        {"lr": True},
        {"lr": 1e39},
        {"lr": 10**400},
        {"lr": 1, "dampening": float("inf")},
    ],
    ids=lambda options: str(options)[:20],
)
def test_sgd_refuses_bad_values(options):
    with pytest.raises(UsageError, match="SGD"):
        SGD(**options)
