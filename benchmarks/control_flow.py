"""Models with control flow within budgets: slowdown, equality with TVM's own VM, smallest budget.

    python benchmarks/control_flow.py [--models lstm-loop,tree-lstm,unrolled-gan] [--steps 5]

Writes benchmarks/results/control_flow.json. Budgeted and unbudgeted steps take turns; times are
medians. The smallest budget is found by running steps, to a hundredth of the peak.
"""

from __future__ import annotations

import argparse
import json
import statistics
from pathlib import Path
from typing import Any

import numpy as np

import tvm_dtr
from tvm_dtr import models
from tvm_dtr.errors import BudgetError, ThrashError
from tvm_dtr.models.tree_lstm import complete_tree
from tvm_dtr.verify import StockVM

FRACTIONS = (0.8, 0.7, 0.6, 0.5, 0.4, 0.3)
RESULTS = Path(__file__).parent / "results" / "control_flow.json"


def made_up(program: Any, sizes: dict[str, int], fixed: dict[str, Any]) -> dict[str, Any]:
    random = np.random.default_rng(0)
    inputs: dict[str, Any] = {}
    for spec in program.inputs:
        shape = [sizes[n] if isinstance(n, str) else n for n in spec.shape]
        if spec.name in fixed:
            inputs[spec.name] = fixed[spec.name]
        elif spec.default is not None:
            continue
        elif "int" in spec.dtype:
            inputs[spec.name] = random.integers(0, spec.classes or 2, shape)
        else:
            inputs[spec.name] = random.standard_normal(shape).astype(spec.dtype)
    return inputs


def workload(name: str) -> tuple[Any, dict[str, Any]]:
    """A program and the inputs of a step."""
    sgd = tvm_dtr.SGD(lr=0.01)
    if name == "unrolled-gan":
        model = models.unrolled_gan(batch=256, seed=0)
        program = tvm_dtr.build(model, loss="output", optimizer=sgd, freeze=["disc.*"])
        return program, made_up(program, {}, {"inner": np.int64(40)})
    batch = {"lstm-loop": 128, "gru-loop": 128, "tree-lstm": 64}[name]
    program = tvm_dtr.build(models.make(name, batch=batch), loss="cross_entropy", optimizer=sgd)
    tree = complete_tree(7)
    sizes = {"time": 100, "nodes": len(tree["left"])}
    return program, made_up(program, sizes, tree if name == "tree-lstm" else {})


def same(a: dict[str, np.ndarray], b: dict[str, np.ndarray]) -> bool:
    return all(a[name].tobytes() == np.asarray(b[name]).tobytes() for name in a)


def measure(program: Any, inputs: dict[str, Any], fraction: float, steps: int) -> dict[str, Any]:
    budget = int(program.unbudgeted_peak_bytes * fraction)
    row: dict[str, Any] = {"budget_fraction": fraction, "budget_bytes": budget}
    try:
        free = tvm_dtr.VirtualMachine(program)
        tight = tvm_dtr.VirtualMachine(program, memory_budget=budget)
        times: dict[Any, list[float]] = {free: [], tight: []}
        equal, peak = True, 0
        for _ in range(steps):
            results = {}
            for vm in (free, tight):
                results[vm] = vm.step(**inputs)
                times[vm].append(vm.stats["step_seconds"])
            equal = equal and same(results[free], results[tight])
            peak = max(peak, tight.stats["peak_bytes"])
    except (BudgetError, ThrashError) as error:
        kind = "oom" if isinstance(error, BudgetError) else "thrash"
        return row | {"result": kind}
    slowdown = statistics.median(times[tight][1:]) / statistics.median(times[free][1:])
    stats = {k: tight.stats[k] for k in ("evictions", "rematerializations", "pinned_bytes")}
    return (
        row
        | stats
        | {
            "result": "ok",
            "slowdown": slowdown,
            "peak_bytes": peak,
            "within_budget": peak <= budget,
            "bitwise_equal": equal,
        }
    )


def smallest(program: Any, inputs: dict[str, Any]) -> float:
    low, high = 0.0, 1.0
    while high - low > 0.01:
        middle = (low + high) / 2
        ok = measure(program, inputs, middle, 2)["result"] == "ok"
        low, high = (low, middle) if ok else (middle, high)
    return round(high, 2)


def growth(program: Any, steps: int) -> dict[str, Any]:
    """Memory and records after steps of changing lengths (for models over time)."""
    vm = tvm_dtr.VirtualMachine(program)
    held = []
    for step in range(steps):
        vm.step(**made_up(program, {"time": 1 + 37 * step % 100}, {}))
        counters = vm.counters()
        held.append([counters[k] for k in ("active_bytes", "live_tensors", "live_ops")])
    return {"steps": steps, "held_after_first": held[1], "held_at_end": held[-1]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", default="lstm-loop,tree-lstm,unrolled-gan")
    parser.add_argument("--steps", type=int, default=5)
    arguments = parser.parse_args()
    rows = []
    for name in arguments.models.split(","):
        program, inputs = workload(name)
        program.measure(inputs)
        stock = StockVM(program).step(
            **{s.name: np.asarray(inputs.get(s.name, s.default)) for s in program.inputs}
        )
        equal = same(tvm_dtr.VirtualMachine(program).step(**inputs), stock)
        head = {"model": name, "unbudgeted_peak_bytes": program.unbudgeted_peak_bytes}
        head |= {"equal_to_stock": equal}
        for fraction in FRACTIONS:
            rows.append(head | measure(program, inputs, fraction, arguments.steps))
            print(rows[-1], flush=True)
        rows.append(head | {"smallest_budget_fraction": smallest(program, inputs)})
        if name in ("lstm-loop", "gru-loop"):
            rows[-1] |= growth(program, 500)
        print(rows[-1], flush=True)
        RESULTS.write_text(json.dumps({"rows": rows}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
