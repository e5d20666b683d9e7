"""How good advice is: predicted slowdown and feasibility against runs, on random budgets.

python benchmarks/advise.py --pairs 30 --json benchmarks/results/advise.json
"""

from __future__ import annotations

import argparse
import gc
import json
import random
import statistics
from pathlib import Path
from typing import Any

import tvm_dtr
from tvm_dtr import models
from tvm_dtr.advise import predict
from tvm_dtr.cli.advise import profiled_step
from tvm_dtr.cli.synthetic import synthetic_inputs

MODELS = {"resnet20": 32, "resnet32": 32, "mobilenet": 16, "gpt": None, "lstm": None, "mlp": 64}


def build(name: str, batch: int | None) -> Any:
    model = models.make(name, batch=batch) if batch else models.make(name)
    return tvm_dtr.build(model, loss="cross_entropy", optimizer=tvm_dtr.SGD(lr=0.01))


def step_seconds(vm: Any, inputs: dict[str, Any]) -> float:
    vm.step(**inputs)
    return vm.stats["step_seconds"]


def measure(program: Any, budget: int, steps: int) -> float | None:
    """Median of alternating steps with and without the budget; None where it is refused."""
    inputs = synthetic_inputs(program, 0)
    try:
        small = tvm_dtr.VirtualMachine(program, memory_budget=budget)
    except tvm_dtr.BudgetError:
        return None
    full = tvm_dtr.VirtualMachine(program)
    ratios = []
    for _ in range(steps + 1):
        ratios.append((step_seconds(small, inputs), step_seconds(full, inputs)))
    del small, full
    gc.collect()
    budgeted, without = zip(*ratios[1:], strict=True)
    return statistics.median(budgeted) / statistics.median(without)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=30)
    parser.add_argument("--steps", type=int, default=7)
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, required=True)
    arguments = parser.parse_args()
    draw = random.Random(arguments.seed)
    names = arguments.models.split(",")
    rows = []
    for index, name in enumerate(names):
        program = build(name, MODELS[name])
        seconds, whole = profiled_step(program)
        peak = program.unbudgeted_peak_bytes
        count = arguments.pairs // len(names) + (index < arguments.pairs % len(names))
        for _ in range(count):
            fraction = draw.uniform(0.1, 0.95)
            point = predict(program.replay, int(fraction * peak), seconds, whole)
            slowdown = measure(program, point.budget_bytes, arguments.steps)
            rows.append(
                {
                    "model": name,
                    "budget_fraction": fraction,
                    "budget_bytes": point.budget_bytes,
                    "predicted_slowdown": point.slowdown,
                    "slowdown": slowdown,
                    "feasibility_right": (point.slowdown is None) == (slowdown is None),
                }
            )
            print(rows[-1], flush=True)
            arguments.json.write_text(json.dumps({"rows": rows}, indent=1) + "\n")
    both = [r for r in rows if r["slowdown"] and r["predicted_slowdown"]]
    errors = [abs(r["predicted_slowdown"] / r["slowdown"] - 1) for r in both]
    print(
        f"{len(rows)} pairs, feasibility right in {sum(r['feasibility_right'] for r in rows)}; "
        f"slowdown within 5 % in {sum(e <= 0.05 for e in errors)} of {len(errors)}, "
        f"median error {statistics.median(errors):.3f}, largest {max(errors):.3f}"
    )


if __name__ == "__main__":
    main()
