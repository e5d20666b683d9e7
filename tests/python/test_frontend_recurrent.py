"""Recurrent layers: against plain NumPy loops; how long the programs are; what is refused."""

import numpy as np
import pytest
from onnx_models import ModelMaker, check_gradients, compiled

from tvm_dtr.builder import make_training_step
from tvm_dtr.errors import ModelError
from tvm_dtr.frontend import import_model
from tvm_dtr.relay_graph import post_order

RNG = np.random.default_rng(5)
STEPS, BATCH, FEATURES, HIDDEN = 4, 3, 2, 3


def layer(op, gates, steps=STEPS, lengths=False, dtype="float64", **attrs):
    maker = ModelMaker(dtype=dtype, opset=14)
    count = 2 if attrs.get("direction") == "bidirectional" else 1
    operands = [
        maker.input("x", [steps, BATCH, FEATURES]),
        maker.weight("w", RNG.normal(size=(count, gates * HIDDEN, FEATURES))),
        maker.weight("r", RNG.normal(size=(count, gates * HIDDEN, HIDDEN))),
        maker.weight("b", RNG.normal(size=(count, 2 * gates * HIDDEN))),
        maker.input("lengths", [BATCH], "int32") if lengths else "",
    ]
    results = maker.node(op, operands, outputs=2, hidden_size=HIDDEN, **attrs)
    return maker.model(*results)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def lstm(x, w, r, b):
    h = c = np.zeros((BATCH, HIDDEN))
    outputs = []
    for row in x:
        gates = row @ w.T + h @ r.T + b[: 4 * HIDDEN] + b[4 * HIDDEN :]
        i, o, f, g = np.split(gates, 4, 1)
        c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
        h = sigmoid(o) * np.tanh(c)
        outputs.append(h)
    return np.stack(outputs)


def gru(x, w, r, b, linear_before_reset):
    h, outputs = np.zeros((BATCH, HIDDEN)), []
    (wz, wr, wh), (rz, rr, rh) = np.split(w, 3), np.split(r, 3)
    bz, br, bh, cz, cr, ch = np.split(b, 6)
    for row in x:
        z = sigmoid(row @ wz.T + h @ rz.T + bz + cz)
        reset = sigmoid(row @ wr.T + h @ rr.T + br + cr)
        inner = reset * (h @ rh.T + ch) if linear_before_reset else (reset * h) @ rh.T + ch
        h = (1 - z) * np.tanh(row @ wh.T + inner + bh) + z * h
        outputs.append(h)
    return np.stack(outputs)


def outputs_of(run, **feeds):
    feeds["target"] = np.zeros(run.step.inputs[-1].shape)
    got = run(**feeds)
    return [got[r.name] for r in run.step.results[1:3]]


def test_lstm_equals_a_loop():
    run = compiled(layer("LSTM", 4))
    x = RNG.normal(size=(STEPS, BATCH, FEATURES))
    y, last = outputs_of(run, x=x)
    expected = lstm(x, *(run.state[n][0] for n in "wrb"))
    np.testing.assert_allclose(y[:, 0], expected, rtol=1e-10)
    np.testing.assert_allclose(last[0], expected[-1], rtol=1e-10)


@pytest.mark.parametrize("linear_before_reset", [0, 1])
def test_gru_equals_a_loop(linear_before_reset):
    run = compiled(layer("GRU", 3, linear_before_reset=linear_before_reset))
    x = RNG.normal(size=(STEPS, BATCH, FEATURES))
    y, _ = outputs_of(run, x=x)
    expected = gru(x, *(run.state[n][0] for n in "wrb"), linear_before_reset)
    np.testing.assert_allclose(y[:, 0], expected, rtol=1e-10)


def test_lengths_may_differ_from_step_to_step():
    run = check_gradients(
        layer("LSTM", 4, lengths=True, direction="bidirectional"),
        reference=False,
        feeds={"lengths": np.array([4, 1, 2], "int32")},
    )
    x = RNG.normal(size=(STEPS, BATCH, FEATURES))
    for lengths in ([4, 1, 2], [1, 3, 4]):
        y, last = outputs_of(run, x=x, lengths=np.array(lengths, "int32"))
        for example, n in enumerate(lengths):
            for d, sign in enumerate((1, -1)):
                part = x[:n, [example] * BATCH][::sign]
                expected = lstm(part, *(run.state[k][d] for k in "wrb"))[::sign, 0]
                np.testing.assert_allclose(y[:n, d, example], expected, rtol=1e-10)
                end = expected[-1 if d == 0 else 0]
                np.testing.assert_allclose(last[d, example], end, rtol=1e-10)
            assert not y[n:, :, example].any()


def test_clipping_and_activations_with_parameters():
    attrs = {
        "activations": ["HardSigmoid", "ScaledTanh", "Affine"],
        "activation_alpha": [0.25, 1.5, 0.5],
        "activation_beta": [0.4, 0.75, 0.1],
        "clip": 2.0,
    }
    check_gradients(layer("LSTM", 4, **attrs), reference=False)


def calls(steps):
    step = make_training_step(layer("LSTM", 4, steps=steps, dtype="float32"), loss="mse")
    return [e for e in post_order([step.function.body]) if hasattr(e, "op")]


def test_programs_grow_by_a_few_ops_a_step():
    short, long = calls(6), calls(10)
    products = [sum(e.op.name == "nn.dense" for e in order) for order in (short, long)]
    # A step is one product forward and one backward; all steps share those of the weights.
    assert products == [6 + 5 + 4 - 1, 10 + 9 + 4 - 1]


@pytest.mark.parametrize(
    ("attrs", "message"),
    [
        (
            {"activations": ["Tanh", "Step", "Tanh"]},
            r"\(LSTM\): activation 'Step' is not supported",
        ),
        ({"direction": "up"}, "direction 'up'; expected forward, reverse, bidirectional"),
        ({"activations": ["Tanh"]}, "1 activations; expected 3 for each direction"),
    ],
)
def test_what_is_refused_names_the_node(attrs, message):
    with pytest.raises(ModelError, match=message):
        import_model(layer("LSTM", 4, **attrs))


def test_weights_that_do_not_fit_are_refused():
    with pytest.raises(
        ModelError, match=r"input 1 has the shape \(1, 9, 2\); expected \(1, 12, n\)"
    ):
        import_model(layer("LSTM", 3))
