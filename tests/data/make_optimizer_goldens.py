"""Writes torch_optimizers.npz beside this file: a two-layer network after 1, 10 and 50 steps of
PyTorch's optimizers, also with its schedulers, and the learning rates of these. Needs torch 2.13.0.

    python tests/data/make_optimizer_goldens.py

PyTorch has no Lion: its rule is written out below, from the paper.
"""

from pathlib import Path

import numpy as np
import torch
from torch.optim import lr_scheduler

HERE = Path(__file__).parent
STEPS, KEPT = 50, (1, 10, 50)


class Lion(torch.optim.Optimizer):
    def __init__(self, params, lr=1e-4, betas=(0.9, 0.99), weight_decay=0.0):
        super().__init__(params, {"lr": lr, "betas": betas, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            b1, b2 = group["betas"]
            for p in group["params"]:
                m = self.state[p].setdefault("m", torch.zeros_like(p))
                p.mul_(1 - group["lr"] * group["weight_decay"])
                p.sub_(group["lr"] * torch.sign(b1 * m + (1 - b1) * p.grad))
                m.mul_(b2).add_(p.grad, alpha=1 - b2)


# name: (class, options, clip_norm, clip_value)
RUNS = {
    "sgd": (torch.optim.SGD, {"lr": 0.1}, None, None),
    "sgd_momentum": (
        torch.optim.SGD,
        {"lr": 0.05, "momentum": 0.9, "dampening": 0.3, "weight_decay": 0.01},
        None,
        None,
    ),
    "sgd_nesterov": (
        torch.optim.SGD,
        {"lr": 0.05, "momentum": 0.9, "nesterov": True, "weight_decay": 0.01},
        None,
        None,
    ),
    "sgd_clip_norm": (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9}, 0.05, None),
    "sgd_clip_value": (torch.optim.SGD, {"lr": 0.1}, None, 0.01),
    "adam": (torch.optim.Adam, {}, None, None),
    "adam_l2": (
        torch.optim.Adam,
        {"lr": 0.01, "weight_decay": 0.1, "betas": (0.8, 0.95)},
        None,
        None,
    ),
    "adam_amsgrad": (torch.optim.Adam, {"lr": 0.01, "amsgrad": True}, None, None),
    "adamw": (torch.optim.AdamW, {}, None, None),
    "adamw_decay": (torch.optim.AdamW, {"lr": 0.01, "weight_decay": 0.3, "eps": 1e-6}, None, None),
    "adagrad": (torch.optim.Adagrad, {}, None, None),
    "adagrad_decay": (
        torch.optim.Adagrad,
        {"lr": 0.1, "lr_decay": 0.02, "weight_decay": 0.01, "initial_accumulator_value": 0.1},
        None,
        None,
    ),
    "rmsprop": (torch.optim.RMSprop, {}, None, None),
    "rmsprop_centered": (
        torch.optim.RMSprop,
        {"lr": 0.003, "momentum": 0.9, "centered": True, "weight_decay": 0.01, "alpha": 0.9},
        None,
        None,
    ),
    "rmsprop_momentum": (torch.optim.RMSprop, {"lr": 0.003, "momentum": 0.9}, None, None),
    "adam_accumulate": (torch.optim.Adam, {"lr": 0.01}, None, None, 5),
    "adamw_accumulate_clip": (torch.optim.AdamW, {"lr": 0.01}, 0.05, None, 10),
    "lion": (Lion, {}, None, None),
    "lion_decay": (Lion, {"lr": 0.003, "betas": (0.8, 0.95), "weight_decay": 0.1}, None, None),
}


def start():
    rng = np.random.default_rng(5)
    shapes = {"w1": (5, 6), "b1": (5,), "w2": (3, 5), "b2": (3,)}
    return {name: rng.normal(0, 0.6, shape).astype("float32") for name, shape in shapes.items()}


def data():
    rng = np.random.default_rng(6)
    x = rng.normal(size=(STEPS, 8, 6)).astype("float32")
    target = rng.normal(size=(STEPS, 8, 3)).astype("float32")
    return x, target


def run(kind, options, clip_norm, clip_value, accumulate=1, schedule=None):
    p = {name: torch.tensor(value, requires_grad=True) for name, value in start().items()}
    optimizer = kind(list(p.values()), **options)
    scheduler = schedule and schedule(optimizer)
    kept = {}
    for step, (x, target) in enumerate(zip(*map(torch.tensor, data()), strict=True), 1):
        hidden = torch.tanh(x @ p["w1"].T + p["b1"])
        loss = ((hidden @ p["w2"].T + p["b2"] - target) ** 2).mean()
        (loss / accumulate).backward()
        if step % accumulate:
            continue
        if clip_value:
            torch.nn.utils.clip_grad_value_(list(p.values()), clip_value)
        if clip_norm:
            torch.nn.utils.clip_grad_norm_(list(p.values()), clip_norm)
        optimizer.step()
        optimizer.zero_grad()
        if scheduler:
            scheduler.step()
        if step in KEPT:
            kept.update({f"{step}/{n}": v.detach().numpy().copy() for n, v in p.items()})
    return kept


def rates(make):
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.3)
    scheduler = make(optimizer)
    found = []
    for _ in range(STEPS):
        found.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    return np.array(found)


SCHEDULES = {
    "constant": lambda o: lr_scheduler.LambdaLR(o, lambda step: 1.0),
    "step": lambda o: lr_scheduler.StepLR(o, step_size=7, gamma=0.5),
    "cosine": lambda o: lr_scheduler.CosineAnnealingLR(o, T_max=STEPS, eta_min=0.01),
    "warm_up": lambda o: lr_scheduler.SequentialLR(
        o,
        [
            lr_scheduler.LinearLR(o, start_factor=0.1, total_iters=5),
            lr_scheduler.CosineAnnealingLR(o, T_max=STEPS - 5),
        ],
        milestones=[5],
    ),
    "one_cycle": lambda o: lr_scheduler.OneCycleLR(
        o, max_lr=0.3, total_steps=STEPS + 1, cycle_momentum=False
    ),
}

if __name__ == "__main__":
    x, target = data()
    arrays = {"x": x, "target": target}
    arrays.update({f"start/{name}": value for name, value in start().items()})
    for name, case in RUNS.items():
        arrays.update({f"{name}/{key}": value for key, value in run(*case).items()})
    momentum = {"lr": 0.3, "momentum": 0.5}
    for name, make in SCHEDULES.items():
        found = run(torch.optim.SGD, momentum, None, None, schedule=make)
        arrays.update({f"scheduled/{name}/{key}": value for key, value in found.items()})
        arrays[f"rates/{name}"] = rates(make)
    np.savez_compressed(HERE / "torch_optimizers.npz", **arrays)
