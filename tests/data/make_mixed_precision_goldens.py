"""Writes torch_mixed_precision.npz beside this file: a residual CNN and a small GPT after 20 steps
of SGD in PyTorch's autocast on the CPU, in float16, bfloat16 and, without it, float32. Needs torch
2.13.0.

    python tests/data/make_mixed_precision_goldens.py
"""

from pathlib import Path

import numpy as np
import torch
from torch.nn import functional

HERE = Path(__file__).parent
STEPS, RATE = 20, 0.05
SCALES = {"float16": 1024.0, "bfloat16": 1.0, "float32": 1.0}  # of the loss in the backward pass

CONV_BATCH, CLASSES, CHANNELS = 8, 5, 8
TOKENS, WIDTH, HEADS, CONTEXT, GPT_BATCH = 11, 16, 2, 8, 4


def conv_weights():
    rng = np.random.default_rng(1)
    shapes = {"c0": (CHANNELS, 3, 3, 3), "c1": (CHANNELS, CHANNELS, 3, 3)}
    shapes |= {"c2": (CHANNELS, CHANNELS, 3, 3), "fc": (CLASSES, CHANNELS)}
    found = {n: rng.normal(0, np.sqrt(2 / np.prod(s[1:])), s) for n, s in shapes.items()}
    for i in range(3):
        found |= {f"g{i}": np.ones(CHANNELS), f"b{i}": np.zeros(CHANNELS)}
    found["fcb"] = np.zeros(CLASSES)
    return {name: value.astype("float32") for name, value in found.items()}


def conv_data():
    rng = np.random.default_rng(2)
    x = rng.normal(size=(STEPS, CONV_BATCH, 3, 6, 6)).astype("float32")
    return x, rng.integers(0, CLASSES, (STEPS, CONV_BATCH))


def conv_net(p, x):
    def norm(x, i):
        return functional.batch_norm(x, None, None, p[f"g{i}"], p[f"b{i}"], training=True)

    def conv(x, i):
        return functional.conv2d(x, p[f"c{i}"], padding=1)

    h = functional.relu(norm(conv(x, 0), 0))
    y = functional.relu(norm(conv(h, 1), 1))
    h = functional.relu(norm(conv(y, 2), 2) + h)
    return functional.linear(h.mean((2, 3)), p["fc"], p["fcb"])


def gpt_weights():
    rng = np.random.default_rng(3)
    shapes = {"wte": (TOKENS, WIDTH), "wpe": (CONTEXT, WIDTH), "qkv": (WIDTH, 3 * WIDTH)}
    shapes |= {"proj": (WIDTH, WIDTH), "up": (WIDTH, 4 * WIDTH), "down": (4 * WIDTH, WIDTH)}
    found = {name: rng.normal(0, 0.25, shape) for name, shape in shapes.items()}
    for name in ("ln1", "ln2", "ln3"):
        found |= {f"{name}.g": np.ones(WIDTH), f"{name}.b": np.zeros(WIDTH)}
    return {name: value.astype("float32") for name, value in found.items()}


def gpt_data():
    rng = np.random.default_rng(4)
    tokens = rng.integers(0, TOKENS, (STEPS, GPT_BATCH, CONTEXT + 1))
    return tokens[..., :-1], tokens[..., 1:]


def gpt(p, x):
    def norm(h, name):
        return functional.layer_norm(h, (WIDTH,), p[f"{name}.g"], p[f"{name}.b"])

    def heads(t):
        return t.reshape(GPT_BATCH, CONTEXT, HEADS, WIDTH // HEADS).transpose(1, 2)

    h = functional.embedding(x, p["wte"]) + p["wpe"]
    q, k, v = map(heads, (norm(h, "ln1") @ p["qkv"]).split(WIDTH, dim=-1))
    scores = (q @ k.transpose(-1, -2)).float() * (HEADS / WIDTH) ** 0.5
    mask = torch.triu(torch.full((CONTEXT, CONTEXT), -1e9), 1)
    mixed = torch.softmax(scores + mask, -1) @ v
    h = h + mixed.transpose(1, 2).reshape(GPT_BATCH, CONTEXT, WIDTH) @ p["proj"]
    h = h + functional.gelu(norm(h, "ln2") @ p["up"]) @ p["down"]
    return (norm(h, "ln3") @ p["wte"].T).transpose(1, 2)


NETS = {"conv": (conv_weights, conv_data, conv_net), "gpt": (gpt_weights, gpt_data, gpt)}


def run(weights, data, net, dtype):
    p = {name: torch.tensor(value, requires_grad=True) for name, value in weights().items()}
    optimizer = torch.optim.SGD(list(p.values()), lr=RATE)
    losses = []
    for x, labels in zip(*map(torch.tensor, data()), strict=True):
        low = getattr(torch, dtype)
        with torch.autocast("cpu", dtype=low, enabled=dtype != "float32"):
            logits = net(p, x)
        loss = functional.cross_entropy(logits.float(), labels)
        optimizer.zero_grad()
        (loss * SCALES[dtype]).backward()
        for value in p.values():
            value.grad /= SCALES[dtype]
        optimizer.step()
        losses.append(loss.item())
    return {name: value.detach().numpy() for name, value in p.items()}, losses


if __name__ == "__main__":
    arrays = {}
    for name, (weights, data, net) in NETS.items():
        arrays |= {f"{name}/start/{key}": value for key, value in weights().items()}
        arrays |= dict(zip((f"{name}/x", f"{name}/labels"), data(), strict=True))
        for dtype in SCALES:
            ended, losses = run(weights, data, net, dtype)
            arrays[f"{name}/{dtype}/losses"] = np.array(losses)
            arrays |= {f"{name}/{dtype}/{key}": value for key, value in ended.items()}
            print(name, dtype, losses[0], losses[-1])
    np.savez_compressed(HERE / "torch_mixed_precision.npz", **arrays)
