"""The models with loops, branches and trees: built, trained a step, gradients against formulas."""

from functools import partial

import numpy as np
import onnx
import pytest

import tvm_dtr
from tvm_dtr import models
from tvm_dtr.comparison import compare
from tvm_dtr.models.recurrent import gru_loop, lstm_loop
from tvm_dtr.models.tree_lstm import complete_tree, random_tree, tree_lstm
from tvm_dtr.models.unrolled_gan import unrolled_gan
from tvm_dtr.passes import NotPlannableError, graph_of_program
from tvm_dtr.verify import StockVM

RNG = np.random.default_rng(0)


def normal(*shape):
    return RNG.standard_normal(shape).astype("float32")


@pytest.mark.parametrize("name", models.CONTROL_FLOW)
def test_parameter_count_is_the_listed_one(name):
    model = models.make(name, batch=2)
    onnx.checker.check_model(model)
    count = sum(int(np.prod(t.dims)) for t in model.graph.initializer)
    assert count == models.MODELS[name].parameters


def slopes(loss, weights, name, count=3):
    """Central differences of ``loss(weights)`` at some places of a weight, in float64."""
    places = [tuple(RNG.integers(0, n) for n in weights[name].shape) for _ in range(count)]
    for place in places:
        values = []
        for step in (1e-5, -1e-5):
            moved = {**weights, name: weights[name].copy()}
            moved[name][place] += step
            values.append(loss(moved))
        yield place, (values[0] - values[1]) / 2e-5


def check(program, loss_of, batches):
    """Gradients of each step within 1e-4 of differences in float64; results of the stock VM."""
    weights = {name: value.astype("float64") for name, value in program.initial_state.items()}
    vm, stock = tvm_dtr.VirtualMachine(program), StockVM(program)
    for batch in batches:
        results = vm.step(**batch)
        expected = stock.step(**{name: np.asarray(value) for name, value in batch.items()})
        assert all(results[name].tobytes() == expected[name].tobytes() for name in expected)
        assert results["loss"] == pytest.approx(loss_of(weights, batch), rel=1e-5)
        for name in program.parameter_names:
            for place, slope in slopes(lambda w, b=batch: loss_of(w, b), weights, name):
                assert results[f"grad:{name}"][place] == pytest.approx(slope, abs=1e-4)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def cross_entropy(hidden, w, labels):
    logits = hidden @ w["fc.weight"].T + w["fc.bias"]
    logits = logits - logits.max(1, keepdims=True)
    chosen = logits[np.arange(len(labels)), labels]
    return float(np.mean(np.log(np.exp(logits).sum(1)) - chosen))


def lstm_loss(w, batch):
    h = c = np.zeros((2, 6))
    for x in batch["x"]:
        gates = x @ w["lstm.weight_x"] + h @ w["lstm.weight_h"] + w["lstm.bias"]
        i, f, g, o = np.split(gates, 4, 1)
        c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
        h = sigmoid(o) * np.tanh(c)
    return cross_entropy(h, w, batch["labels"])


def gru_loss(w, batch):
    h = np.zeros((2, 6))
    for x in batch["x"]:
        gates = x @ w["gru.gates.weight_x"] + h @ w["gru.gates.weight_h"] + w["gru.gates.bias"]
        r, z = np.split(sigmoid(gates), 2, 1)
        past = r * (h @ w["gru.new.weight_h"])
        new = np.tanh(x @ w["gru.new.weight_x"] + past + w["gru.new.bias"])
        h = new + z * (h - new)
    return cross_entropy(h, w, batch["labels"])


@pytest.mark.parametrize(("builder", "loss"), [(lstm_loop, lstm_loss), (gru_loop, gru_loss)])
def test_recurrent_networks_over_run_time_lengths(builder, loss):
    model = builder(batch=2, seed=0, features=4, width=6, classes=3)
    program = tvm_dtr.build(model, loss="cross_entropy")
    lengths = (0, 1, 2, 17, 100)
    check(program, loss, [{"x": normal(n, 2, 4), "labels": np.array([0, 2])} for n in lengths])


def tree_loss(w, batch):
    def fold(node):
        if batch["left"][node] < 0:
            gates = batch["x"][node] @ w["leaf.weight"] + w["leaf.bias"]
            i, o, g = np.split(gates, 3, 1)
            c = sigmoid(i) * np.tanh(g)
        else:
            (hl, cl), (hr, cr) = fold(batch["left"][node]), fold(batch["right"][node])
            gates = np.concatenate([hl, hr], 1) @ w["node.weight"] + w["node.bias"]
            i, o, g, fl, fr = np.split(gates, 5, 1)
            c = sigmoid(fl) * cl + sigmoid(fr) * cr + sigmoid(i) * np.tanh(g)
        return sigmoid(o) * np.tanh(c), c

    return cross_entropy(fold(int(batch["root"]))[0], w, batch["labels"])


def test_tree_lstm_over_run_time_trees():
    model = tree_lstm(batch=2, seed=0, features=4, width=6, classes=3)
    program = tvm_dtr.build(model, loss="cross_entropy")
    trees = [random_tree(1, 0), random_tree(2, 0), random_tree(17, 1), complete_tree(4)]
    batches = [{"x": normal(len(t["left"]), 2, 4), "labels": np.array([0, 2]), **t} for t in trees]
    check(program, tree_loss, batches)
    cycle = batches[1] | {"left": np.array([2, 2, 2]), "right": np.array([0, 1, 1])}
    with pytest.raises(tvm_dtr.InputError, match="'left' and 'right' are no tree: node 1"):
        tvm_dtr.VirtualMachine(program).step(**cycle)


def gan_loss(w, batch):
    hidden = np.tanh(batch["z"] @ w["gen.fc1.weight"].T + w["gen.fc1.bias"])
    fake = hidden @ w["gen.fc2.weight"].T + w["gen.fc2.bias"]
    w1, w2 = w["disc.weight1"], w["disc.weight2"]
    for _ in range(int(batch["inner"])):
        change1, change2 = 0, 0
        for x, sign in ((batch["real"], -1), (fake, 1)):
            h = np.tanh(x @ w1)
            slope = sign * sigmoid(sign * (h @ w2))
            change2 = change2 + h.T @ slope
            change1 = change1 + x.T @ ((slope @ w2.T) * (1 - h * h))
        w1, w2 = w1 - 0.1 / 3 * change1, w2 - 0.1 / 3 * change2
    return float(np.mean(np.log1p(np.exp(-(np.tanh(fake @ w1) @ w2)))))


def test_unrolled_gan_over_run_time_inner_steps():
    model = unrolled_gan(batch=3, seed=0, noise=4, width=6, features=5)
    program = tvm_dtr.build(model, loss="output")
    batches = [
        {"z": normal(3, 4), "real": normal(3, 5), "inner": np.int64(n)} for n in (0, 1, 2, 17)
    ]
    check(program, gan_loss, batches)


@pytest.mark.parametrize("taken", [True, False])
def test_early_exit_trains_what_it_went_through(taken):
    sure = 0.0 if taken else 1.0
    sizes = {"features": 6, "width": 8, "layers": 2, "classes": 3}
    model = models.early_exit(batch=2, seed=0, sure=sure, **sizes)
    program = tvm_dtr.build(model, loss="cross_entropy")
    results = tvm_dtr.VirtualMachine(program).step(x=normal(2, 6), labels=np.array([0, 2]))
    assert results["grad:exit.bias"].any() == taken
    assert results["grad:fc.bias"].any() != taken
    assert results["grad:fc1.weight"].any()


def test_scan_language_model_learns():
    model = models.scan_language_model(batch=2, seed=0, context=6, width=16, vocabulary=8)
    optimizer = tvm_dtr.SGD(lr=1.0)
    program = tvm_dtr.build(model, loss="cross_entropy", optimizer=optimizer)
    vm = tvm_dtr.VirtualMachine(program)
    text = RNG.integers(0, 8, (7, 2))
    losses = [float(vm.step(x=text[:-1], labels=text[1:])["loss"]) for _ in range(20)]
    assert losses[-1] < losses[0] / 2


SMALL = {"batch": 2, "seed": 0, "features": 4, "width": 6, "classes": 3}
UNPLANNED = {
    "loop": partial(lstm_loop, **SMALL),
    "tree": partial(tree_lstm, **SMALL),
    "scan": partial(models.scan_language_model, batch=2, seed=0, context=6, width=16, vocabulary=8),
    "if": partial(
        models.early_exit, batch=2, seed=0, sure=0.5, features=6, width=8, layers=2, classes=3
    ),
}


@pytest.mark.parametrize("kind", UNPLANNED)
def test_planners_refuse_and_say_why(kind):
    program = tvm_dtr.build(UNPLANNED[kind](), loss="cross_entropy")
    reason = f"{kind} has control flow that depends on data, so that its ops are not known before"
    with pytest.raises(NotPlannableError, match=reason):
        graph_of_program(program, kind)
    with pytest.raises(tvm_dtr.UsageError, match="control flow that depends on data"):
        tvm_dtr.VirtualMachine(program, memory_budget=10**9, policy="plan")
    methods = ["dtr-online", "anneal", "chen-sqrt", "checkmate"]
    rows = compare(program, name=kind, budgets=["1GiB"], methods=methods, rounds=1)
    assert [row["result"] for row in rows] == ["ok"] + ["unsupported"] * 3
    assert all(row["error"].startswith(reason) for row in rows[1:])
