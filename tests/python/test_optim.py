"""Optimizers against PyTorch's, over 50 steps, and their refusals."""

from pathlib import Path

import numpy as np
import pytest
from onnx_models import ModelMaker, compiled
from test_learning_rates import SCHEDULES

from tvm_dtr import optim
from tvm_dtr.builder import make_training_step
from tvm_dtr.errors import ModelError, UsageError
from tvm_dtr.optim import SGD, Adagrad, Adam, AdamW, Lion, RMSprop

GOLDEN = np.load(Path(__file__).parent.parent / "data" / "torch_optimizers.npz")
NAMES = ("w1", "b1", "w2", "b2")

# As in tests/data/make_optimizer_goldens.py.
RUNS = {
    "sgd": (SGD(0.1), {}),
    "sgd_momentum": (SGD(0.05, momentum=0.9, dampening=0.3, weight_decay=0.01), {}),
    "sgd_nesterov": (SGD(0.05, momentum=0.9, nesterov=True, weight_decay=0.01), {}),
    "sgd_clip_norm": (SGD(0.1, momentum=0.9), {"clip_norm": 0.05}),
    "sgd_clip_value": (SGD(0.1), {"clip_value": 0.01}),
    "adam": (Adam(), {}),
    "adam_l2": (Adam(0.01, weight_decay=0.1, betas=(0.8, 0.95)), {}),
    "adam_amsgrad": (Adam(0.01, amsgrad=True), {}),
    "adamw": (AdamW(), {}),
    "adamw_decay": (AdamW(0.01, weight_decay=0.3, eps=1e-6), {}),
    "adagrad": (Adagrad(), {}),
    "adagrad_decay": (
        Adagrad(0.1, lr_decay=0.02, weight_decay=0.01, initial_accumulator_value=0.1),
        {},
    ),
    "rmsprop": (RMSprop(), {}),
    "rmsprop_centered": (
        RMSprop(0.003, momentum=0.9, centered=True, weight_decay=0.01, alpha=0.9),
        {},
    ),
    "rmsprop_momentum": (RMSprop(0.003, momentum=0.9), {}),
    "adam_accumulate": (Adam(0.01), {"accumulate": 5}),
    "adamw_accumulate_clip": (AdamW(0.01), {"accumulate": 10, "clip_norm": 0.05}),
    "lion": (Lion(), {}),
    "lion_decay": (Lion(0.003, betas=(0.8, 0.95), weight_decay=0.1), {}),
}


def network():
    """Two dense layers with tanh between them, as the goldens have."""
    maker = ModelMaker()
    w1, b1, w2, b2 = (maker.weight(name, GOLDEN[f"start/{name}"]) for name in NAMES)
    x = maker.input("x", (8, 6))
    hidden = maker.node("Tanh", [maker.node("Gemm", [x, w1, b1], transB=1)])
    return maker.model(maker.node("Gemm", [hidden, w2, b2], name="y", transB=1))


def next_state(run, got):
    run.state.update({r.name: got[r.name] for r in run.step.results if r.kind == "state"})


@pytest.mark.parametrize("name", RUNS)
def test_50_steps_are_those_of_pytorch(name):
    optimizer, options = RUNS[name]
    run = compiled(network(), optimizer=optimizer, **options)
    for step, (x, target) in enumerate(zip(GOLDEN["x"], GOLDEN["target"], strict=True), 1):
        next_state(run, run(x=x, target=target))
        if step in (1, 10, 50) and step % options.get("accumulate", 1) == 0:
            check_parameters(run.state, f"{name}/{step}")


def check_parameters(state, key):
    for parameter in NAMES:
        wanted = GOLDEN[f"{key}/{parameter}"]
        error = np.linalg.norm(state[parameter] - wanted) / np.linalg.norm(wanted)
        assert error < 1e-5, (key, parameter, error)


@pytest.mark.parametrize("nesterov", [False, True])
def test_momentum_follows_its_formula(nesterov):
    """v <- 0.8 v + g; w <- w - lr v, or with Nesterov's momentum w - lr (g + 0.8 v)."""
    gradients = compiled(network())
    run = compiled(network(), optimizer=SGD(0.1, momentum=0.8, nesterov=nesterov))
    velocity = dict.fromkeys(NAMES, 0.0)
    for x, target in zip(GOLDEN["x"][:3], GOLDEN["target"][:3], strict=True):
        gradients.state.update({name: run.state[name] for name in NAMES})
        got = gradients(x=x, target=target)
        expected = {}
        for name in NAMES:
            g = got[f"grad:{name}"]
            velocity[name] = np.float32(0.8) * velocity[name] + g
            direction = g + np.float32(0.8) * velocity[name] if nesterov else velocity[name]
            expected[name] = run.state[name] - np.float32(0.1) * direction
        next_state(run, run(x=x, target=target))
        for name in NAMES:
            np.testing.assert_allclose(run.state[name], expected[name], rtol=1e-5, atol=1e-7)


def test_50_steps_with_a_schedule_are_those_of_pytorch():
    run = compiled(network(), optimizer=SGD(0.3, momentum=0.5))
    start = dict(run.state)
    for name, schedule in SCHEDULES.items():
        run.state = dict(start)
        for step, (x, target) in enumerate(zip(GOLDEN["x"], GOLDEN["target"], strict=True)):
            next_state(run, run(x=x, target=target, lr=schedule(step)))
        check_parameters(run.state, f"scheduled/{name}/50")


def test_the_learning_rate_is_an_input():
    run = compiled(network(), optimizer=SGD(0.1))
    feeds = {"x": GOLDEN["x"][0], "target": GOLDEN["target"][0]}
    at_default = run(**feeds)["w1"] - run.state["w1"]
    at_half = run(**feeds, lr=0.05)["w1"] - run.state["w1"]
    np.testing.assert_allclose(at_half, at_default / 2, rtol=1e-4, atol=1e-7)
    assert np.array_equal(run(**feeds, lr=0.0)["w1"], run.state["w1"])


def test_frozen_parameters_cost_nothing():
    def calls(**options):
        step = make_training_step(network(), loss="mse", optimizer=Adam(), **options)
        return step, str(step.function).count("nn.dense") + str(step.function).count("nn.matmul")

    whole, dense = calls()
    frozen, fewer = calls(freeze=["w1", "b*"])
    assert frozen.parameter_names == ["w2"] and whole.parameter_names == list(NAMES)
    assert fewer == dense - 2  # neither the gradient of w1 nor that of what w2 reads
    state = {spec.name for spec in frozen.state}
    assert state == {*NAMES, "exp_avg:w2", "exp_avg_sq:w2", "optimizer_step"}


def test_what_is_frozen_must_exist_and_leave_something():
    with pytest.raises(UsageError, match=r"freeze 'stem\.\*' matches no parameter.*w1, b1"):
        make_training_step(network(), loss="mse", freeze=["stem.*"])
    with pytest.raises(ModelError, match="4 are frozen"):
        make_training_step(network(), loss="mse", freeze=["*"])


def test_the_norm_before_clipping_is_an_output():
    run = compiled(network(), optimizer=None, clip_norm=0.05)
    feeds = {"x": GOLDEN["x"][0], "target": GOLDEN["target"][0]}
    free = compiled(network(), optimizer=None)(**feeds)
    norm = np.sqrt(sum(np.sum(free[f"grad:{n}"].astype("float64") ** 2) for n in NAMES))
    got = run(**feeds)
    np.testing.assert_allclose(got["grad_norm"], norm, rtol=1e-6)
    np.testing.assert_allclose(got["grad:w1"], free["grad:w1"] * 0.05 / norm, rtol=1e-4)


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


@pytest.mark.parametrize(
    ("make", "options"),
    [
        (Adam, {"betas": (0.9, 1.0)}),
        (AdamW, {"betas": 0.9}),
        (Lion, {"betas": (0.9,)}),
        (RMSprop, {"alpha": 1.5}),
        (Adagrad, {"eps": -1e-3}),
        (optim.Clipping, {"norm": 0}),
        (optim.Clipping, {"value": float("nan")}),
    ],
)
def test_others_refuse_bad_values(make, options):
    with pytest.raises(UsageError, match="must be"):
        make(**options)
