"""Writes torch_control_flow.npz beside this file: branches, loops, scans and models made of them in
PyTorch, in float64: loss, outputs and gradients over several run-time lengths. Needs torch 2.13.0.

    python tests/data/make_control_flow_goldens.py

Keys: ``CASE/weight/NAME``, and for the number STEP of each batch ``CASE/STEP/input/NAME`` and
``CASE/STEP/expected/NAME``, where gradients are ``grad:NAME``. Nothing of tvm_dtr is used: Python's
own loops and recursion, torch.lstm, torch.gru and autograd's second derivatives.
"""

from pathlib import Path

import numpy as np
import torch
from torch.nn import functional as F

HERE = Path(__file__).parent
LENGTHS = (0, 1, 2, 17, 100)
BATCH, WIDTH = 2, 3
random = np.random.default_rng(20)
arrays = {}


def normal(*shape, scale=1.0):
    """Float32 numbers, so that models of that type start from the very same values."""
    return (random.standard_normal(shape) * scale).astype("float32")


def record(case, weights, batches, step):
    """``step(weights, inputs)`` -> (loss, outputs), of float64 tensors."""
    for name, value in weights.items():
        arrays[f"{case}/weight/{name}"] = value
    for number, inputs in enumerate(batches):
        w = {
            n: torch.tensor(v, dtype=torch.float64, requires_grad=True) for n, v in weights.items()
        }
        tensors = {n: torch.tensor(v) for n, v in inputs.items()}
        tensors = {n: t.double() if t.is_floating_point() else t for n, t in tensors.items()}
        loss, outputs = step(w, tensors)
        grads = torch.autograd.grad(loss, list(w.values()), allow_unused=True)
        expected = {"loss": loss, **outputs}
        for (name, value), grad in zip(w.items(), grads, strict=True):
            expected[f"grad:{name}"] = torch.zeros_like(value) if grad is None else grad
        for name, value in inputs.items():
            arrays[f"{case}/{number}/input/{name}"] = value
        for name, value in expected.items():
            arrays[f"{case}/{number}/expected/{name}"] = value.detach().float().numpy()


def mse(y, inputs):
    return ((y - inputs["target"]) ** 2).mean()


# Constructs, as in tests/python/flow_models.py


def loop(w, inputs, condition=False):
    h, captured, squares = w["h0"], torch.tanh(w["V"]), []
    count = int(inputs.get("n", len(inputs["x"])))
    for row in inputs["x"][:count]:
        h = torch.tanh(h @ captured + row)
        squares.append(h * h)
        if condition and not h.sum() < 1.5:
            break
    else:
        assert not condition or "n" in inputs, "the loop has not ended by its condition"
    y = h * h
    outputs = {"y": y}
    if "n" in inputs:
        outputs["squares"] = torch.stack(squares) if squares else inputs["x"][:0]
    return mse(y, inputs), outputs


def branch(w, inputs):
    x = inputs["x"]
    r = x @ w["W"] if x.sum() > 0 else (x @ w["V"]) * w["b"]
    return mse(r @ w["W"], inputs), {"y": r @ w["W"]}


def scan(w, inputs):
    x, h, rows = inputs["x"], w["h0"], []
    for row, other in zip(x * w["g"], x.flip(0), strict=True):
        h = torch.tanh((h @ w["W"] + row) * other)
        rows.append(h)
    y = torch.stack(rows[::-1]) * x
    return mse(y, inputs), {"y": y}


def nested(w, inputs):
    h = inputs["x"] @ w["W"]
    for _ in range(int(inputs["n"])):
        g = h
        for _ in range(int(inputs["m"])):
            chosen = g @ w["W"] if g.sum() > 0 else g * w["b"]
            g = torch.tanh(chosen + h)
        h = g @ w["W"]
    return mse(h, inputs), {"y": h}


def constructs():
    matrix, square = (BATCH, WIDTH), (WIDTH, WIDTH)
    target, x = normal(*matrix), normal(max(LENGTHS), *matrix)
    weights = {"h0": normal(*matrix, scale=0.5), "V": normal(*square, scale=0.5)}
    counted = [{"x": x[:n], "n": np.int64(n), "target": target} for n in LENGTHS]
    counted.append({"x": x[:17], "n": np.int64(5), "target": target})
    record("loop", weights, counted, loop)
    drift = x * np.float32(0.3) + np.float32(0.1)
    either = [{"x": drift, "n": np.int64(n), "target": target} for n in LENGTHS]
    record("loop_both", weights, either, lambda w, i: loop(w, i, True))
    shifts = np.array([0.2, 0.5, 1], "float32")  # positive: the sum reaches the limit some time
    until = [{"x": drift + s, "target": target} for s in shifts]
    record("loop_condition", weights, until, lambda w, i: loop(w, i, True))
    x, b = np.abs(x[0]), normal(WIDTH, scale=0.5)
    weights = {"W": normal(*square, scale=0.5), "V": normal(*square, scale=0.5), "b": b}
    record("branch", weights, [{"x": x, "target": target}, {"x": -x, "target": target}], branch)
    weights = {"h0": normal(*matrix, scale=0.5), "W": normal(*square, scale=0.5), "g": b}
    shapes = [(n, *matrix) for n in LENGTHS[1:]]
    record("scan", weights, [{"x": normal(*s), "target": normal(*s)} for s in shapes], scan)
    weights = {"W": normal(*square, scale=0.5), "b": b}
    lengths = [(0, 3), (1, 0), (1, 1), (2, 2), (3, 17), (17, 2), (1, 100), (100, 1)]
    both = [{"x": x, "n": np.int64(n), "m": np.int64(m), "target": target} for n, m in lengths]
    record("nested", weights, both, nested)


# Models, as in tvm_dtr.models

FEATURES, HIDDEN, CLASSES = 4, 6, 3


def classified(hidden, w, inputs):
    logits = hidden @ w["fc.weight"].T + w["fc.bias"]
    return F.cross_entropy(logits, inputs["labels"]), {"logits": logits}


def start():
    return torch.zeros(1, BATCH, HIDDEN, dtype=torch.float64)


def lstm(w, inputs):
    h = start()
    if len(inputs["x"]):
        zero = torch.zeros_like(w["lstm.bias"])
        parts = [w["lstm.weight_x"].T, w["lstm.weight_h"].T, w["lstm.bias"], zero]
        h = torch.lstm(inputs["x"], (h, h), parts, True, 1, 0.0, True, False, False)[1]
    return classified(h[0], w, inputs)


def gru(w, inputs):
    h = start()
    if len(inputs["x"]):
        parts = [
            torch.cat([w[f"gru.gates.{n}"], w[f"gru.new.{n}"]], -1)
            for n in ("weight_x", "weight_h", "bias")
        ]
        parts = [parts[0].T, parts[1].T, parts[2], torch.zeros_like(parts[2])]
        h = torch.gru(inputs["x"], h, parts, True, 1, 0.0, True, False, False)[1]
    return classified(h[0], w, inputs)


def tree(w, inputs):
    left, right = inputs["left"].tolist(), inputs["right"].tolist()

    def fold(node):
        if left[node] < 0:
            i, o, g = (inputs["x"][node] @ w["leaf.weight"] + w["leaf.bias"]).chunk(3, 1)
            c = torch.sigmoid(i) * torch.tanh(g)
        else:
            (hl, cl), (hr, cr) = fold(left[node]), fold(right[node])
            gates = torch.cat([hl, hr], 1) @ w["node.weight"] + w["node.bias"]
            i, o, g, fl, fr = gates.chunk(5, 1)
            c = torch.sigmoid(fl) * cl + torch.sigmoid(fr) * cr + torch.sigmoid(i) * torch.tanh(g)
        return torch.sigmoid(o) * torch.tanh(c), c

    return classified(fold(int(inputs["root"]))[0], w, inputs)


def random_tree(leaves):
    left, right, row = [-1] * leaves, [-1] * leaves, list(range(leaves))
    while len(row) > 1:
        at = int(random.integers(0, len(row) - 1))
        left.append(row[at])
        right.append(row[at + 1])
        row[at : at + 2] = [len(left) - 1]
    return {"left": np.array(left), "right": np.array(right), "root": np.int64(row[0])}


def language_model(w, inputs):
    h, rows = torch.zeros(BATCH, HIDDEN, dtype=torch.float64), []
    for row in F.embedding(inputs["x"], w["embed.weight"]):
        gate, new = ((h + row) @ w["cell.weight"] + w["cell.bias"]).chunk(2, 1)
        h = h + torch.sigmoid(gate) * (torch.tanh(new) - h)
        rows.append(h)
    logits = (torch.stack(rows) @ w["head.weight"] + w["head.bias"]).permute(0, 2, 1)
    return F.cross_entropy(logits, inputs["labels"]), {"logits": logits}


def gan(w, inputs):
    """Of the inner steps' gradients the second derivatives are autograd's."""
    hidden = torch.tanh(inputs["z"] @ w["gen.fc1.weight"].T + w["gen.fc1.bias"])
    fake = hidden @ w["gen.fc2.weight"].T + w["gen.fc2.bias"]
    w1, w2 = w["disc.weight1"], w["disc.weight2"]
    for _ in range(int(inputs["inner"])):
        real = F.softplus(-(torch.tanh(inputs["real"] @ w1) @ w2)).mean()
        made = F.softplus(torch.tanh(fake @ w1) @ w2).mean()
        d1, d2 = torch.autograd.grad(real + made, [w1, w2], create_graph=True)
        w1, w2 = w1 - 0.1 * d1, w2 - 0.1 * d2
    return F.softplus(-(torch.tanh(fake @ w1) @ w2)).mean(), {}


def early_exit(w, inputs):
    h = torch.relu(inputs["x"] @ w["fc1.weight"].T + w["fc1.bias"])
    logits = h @ w["exit.weight"].T + w["exit.bias"]
    if not torch.softmax(logits, 1).max(1).values.mean() > 0.5:
        for index in range(2):
            h = torch.relu(h @ w[f"deep{index}.weight"].T + w[f"deep{index}.bias"])
        logits = h @ w["fc.weight"].T + w["fc.bias"]
    return F.cross_entropy(logits, inputs["labels"]), {"logits": logits}


def linear(name, into, out):
    return {f"{name}.weight": normal(out, into, scale=0.4), f"{name}.bias": normal(out, scale=0.1)}


def gates(name, count):
    return {
        f"{name}.weight_x": normal(FEATURES, count * HIDDEN, scale=0.4),
        f"{name}.weight_h": normal(HIDDEN, count * HIDDEN, scale=0.4),
        f"{name}.bias": normal(count * HIDDEN, scale=0.1),
    }


def recurrent_models():
    x, labels = normal(max(LENGTHS), BATCH, FEATURES), np.array([0, 2])
    batches = [{"x": x[:n], "labels": labels} for n in LENGTHS]
    head = linear("fc", HIDDEN, CLASSES)
    record("lstm", gates("lstm", 4) | head, batches, lstm)
    record("gru", gates("gru.gates", 2) | gates("gru.new", 1) | head, batches, gru)
    weights = {
        "leaf.weight": normal(FEATURES, 3 * HIDDEN, scale=0.4),
        "leaf.bias": normal(3 * HIDDEN, scale=0.1),
        "node.weight": normal(2 * HIDDEN, 5 * HIDDEN, scale=0.4),
        "node.bias": normal(5 * HIDDEN, scale=0.1),
    }
    trees = [random_tree(leaves) for leaves in LENGTHS[1:]]
    batches = [{"x": normal(len(t["left"]), BATCH, FEATURES), "labels": labels, **t} for t in trees]
    record("tree", weights | head, batches, tree)
    weights = {
        "embed.weight": normal(8, HIDDEN),
        "cell.weight": normal(HIDDEN, 2 * HIDDEN, scale=0.4),
        "cell.bias": normal(2 * HIDDEN, scale=0.1),
        "head.weight": normal(HIDDEN, 8, scale=0.4),
        "head.bias": normal(8, scale=0.1),
    }
    batches = []
    for n in LENGTHS[1:]:
        text = random.integers(0, 8, (n + 1, BATCH))
        batches.append({"x": text[:-1], "labels": text[1:]})
    record("language_model", weights, batches, language_model)


def other_models():
    weights = linear("gen.fc1", 4, HIDDEN) | linear("gen.fc2", HIDDEN, 5)
    weights |= {"disc.weight1": normal(5, HIDDEN, scale=0.4)}
    weights |= {"disc.weight2": normal(HIDDEN, 1, scale=0.4)}
    z, real = normal(3, 4), normal(3, 5)
    record("gan", weights, [{"z": z, "real": real, "inner": np.int64(n)} for n in LENGTHS], gan)
    weights = linear("fc1", 6, 8) | linear("exit", 8, 3) | linear("fc", 8, 3)
    weights |= linear("deep0", 8, 8) | linear("deep1", 8, 8)
    x, labels = normal(2, 6), np.array([0, 2])
    # Ten times as large, the first layer is surer, and the branch is the other one.
    batches = [{"x": s * x, "labels": labels} for s in np.array([0.01, 10], "float32")]
    record("early_exit", weights, batches, early_exit)


constructs()
recurrent_models()
other_models()
np.savez_compressed(HERE / "torch_control_flow.npz", **arrays)
