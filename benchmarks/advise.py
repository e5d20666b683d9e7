"""How good advice is: predicted slowdown and feasibility against runs, on random budgets.

    TVM_NUM_THREADS=1 python benchmarks/advise.py [--pairs 30] [--models resnet20,gpt]

Writes benchmarks/results/advise.json and .md, and goes on from what is there (--anew starts over).
For each model a few steps are profiled, as ``tvm-dtr advise`` does; budgets are drawn, three in
four between the smallest that works by the simulation and the peak, one in four below the smallest.
Each pair runs: steps within the budget and without one in turn, medians of those after the third,
by when the machine has chosen its policy for good. Some 10 minutes; ``--seconds`` ends earlier, and
the next call goes on there.
"""

from __future__ import annotations

import argparse
import gc
import json
import math
import os
import random
import statistics
import time
from pathlib import Path
from typing import Any

import tvm_dtr
from tvm_dtr import models
from tvm_dtr.advise import predict, slowdown_curve, smallest_budgets
from tvm_dtr.cli.advise import profiled_step
from tvm_dtr.cli.synthetic import synthetic_inputs

# Batches for which a step takes a few tenths of a second.
MODELS = {
    "resnet20": 16,
    "resnet32": 16,
    "mobilenet": 16,
    "gpt": 4,
    "unet": 2,
    "vgg16": 8,
    "lstm": 64,
}
WARM_UP = 3
RESULTS = Path(__file__).parent / "results" / "advise.json"


def build(name: str) -> Any:
    model = models.make(name, batch=MODELS[name])
    loss = "mse" if name == "unet" else "cross_entropy"
    return tvm_dtr.build(model, loss=loss, optimizer=tvm_dtr.SGD(lr=0.01))


def measure(program: Any, budget: int, rounds: int) -> tuple[float | None, str]:
    """(slowdown, policy or why it was refused) of steps within the budget and without, in turn."""
    inputs = synthetic_inputs(program, 0)
    seconds: tuple[list[float], list[float]] = ([], [])
    machines = []
    try:
        machines.append(tvm_dtr.VirtualMachine(program, memory_budget=budget))
        machines.append(tvm_dtr.VirtualMachine(program))
        for _ in range(WARM_UP + rounds):
            for vm, taken in zip(machines, seconds, strict=True):
                vm.step(**inputs)
                taken.append(vm.stats["step_seconds"])
        within, without = (statistics.median(taken[WARM_UP:]) for taken in seconds)
        return within / without, machines[0].policy
    except (tvm_dtr.BudgetError, tvm_dtr.ThrashError) as error:
        return None, type(error).__name__
    finally:
        del machines
        gc.collect()


class Model:
    """A program, what one profiled step tells of it, and how long advice took."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.program = build(name)
        start = time.perf_counter()
        self.profile = profiled_step(self.program)
        self.peak = self.program.unbudgeted_peak_bytes
        slowdown_curve(self.program.replay, self.peak, *self.profile)
        self.advice_seconds = time.perf_counter() - start
        self.smallest = min(smallest_budgets(self.program.replay, self.peak))

    def budget(self, seed: int, index: int) -> int:
        draw = random.Random(f"{seed} {self.name} {index}")
        if draw.random() < 0.25:
            return int(draw.uniform(0.7, 0.98) * self.smallest)
        return int(draw.uniform(self.smallest, 0.95 * self.peak))

    def row(self, seed: int, index: int, rounds: int) -> dict[str, Any]:
        budget = self.budget(seed, index)
        point = predict(self.program.replay, budget, *self.profile)
        slowdown, policy = measure(self.program, budget, rounds)
        return {
            "model": self.name,
            "batch": MODELS[self.name],
            "pair": index,
            "budget_bytes": budget,
            "budget_fraction": budget / self.peak,
            "predicted_slowdown": point.slowdown,
            "predicted_policy": point.policy,
            "slowdown": slowdown,
            "policy": policy,
            "feasibility_right": (point.slowdown is None) == (slowdown is None),
            "advice_seconds": self.advice_seconds,
            "threads": int(os.environ["TVM_NUM_THREADS"]),
        }


def summary(rows: list[dict[str, Any]]) -> str:
    both = [row for row in rows if row["slowdown"] and row["predicted_slowdown"]]
    errors = [abs(row["predicted_slowdown"] / row["slowdown"] - 1) for row in both]
    right = sum(row["feasibility_right"] for row in rows)
    text = f"{len(rows)} pairs; feasibility right in {right}"
    if errors:
        text += (
            f"; slowdown within 5 % in {sum(error <= 0.05 for error in errors)} of {len(errors)}, "
            f"median error {statistics.median(errors):.3f}, largest {max(errors):.3f}"
        )
    return text


def write(path: Path, rows: list[dict[str, Any]]) -> None:
    path.write_text(json.dumps({"rows": rows}, indent=1) + "\n", encoding="utf-8")
    lines = [
        "# Advice against runs",
        "",
        f"By `python benchmarks/advise.py` on {rows[0]['threads']} thread(s): {summary(rows)}.",
        "",
        "| model | batch | budget, of the peak | predicted | measured | policies | advice took |",
        "|---|--:|--:|--:|--:|---|--:|",
    ]
    for row in rows:
        shown = [
            "refused" if row[name] is None else f"{row[name]:.3f}"
            for name in ("predicted_slowdown", "slowdown")
        ]
        lines.append(
            f"| {row['model']} | {row['batch']} | {100 * row['budget_fraction']:.1f} % | "
            f"{' | '.join(shown)} | {row['predicted_policy'] or '-'}, {row['policy']} | "
            f"{row['advice_seconds']:.1f} s |"
        )
    path.with_suffix(".md").write_text("\n".join(lines) + "\n", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=30)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--anew", action="store_true", help="measure again what is there")
    parser.add_argument("--seconds", type=float, default=math.inf, help="begin no pair after them")
    parser.add_argument("--json", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    names = arguments.models.split(",")
    pairs = [(names[i % len(names)], i // len(names)) for i in range(arguments.pairs)]
    there = arguments.json.exists() and not arguments.anew
    rows = json.loads(arguments.json.read_text())["rows"] if there else []
    done = {(row["model"], row["pair"]) for row in rows}
    end = time.monotonic() + arguments.seconds
    for name in names:
        wanted = [i for model, i in pairs if model == name and (name, i) not in done]
        if not wanted or time.monotonic() > end:
            continue
        model = Model(name)
        for index in wanted:
            if time.monotonic() > end:
                break
            rows.append(model.row(arguments.seed, index, arguments.rounds))
            print(rows[-1], flush=True)
            write(arguments.json, rows)
        del model
        gc.collect()
    print(summary(rows))


if __name__ == "__main__":
    main()
