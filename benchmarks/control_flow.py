"""Models with control flow within budgets, in four parts:

    python benchmarks/control_flow.py [slowdown] [smallest] [growth] [decisions]
        [--steps 7] [--models lstm-loop,tree-lstm,unrolled-gan]

slowdown: at 50 and 30 % of the unbudgeted peak, and of what of it is not pinned; steps with and
without the budget take turns, times are medians, results are compared bit by bit, those without a
budget with TVM's own VM. smallest: the smallest budget that runs, by bisection to a hundredth of
the peak. growth: 500 steps under a budget, the length another at each: what stays behind, and the
process's resident set. decisions: time to decide what to evict, per op, of Tree-LSTM and ResNet-20.

Writes benchmarks/results/control_flow.json, of which it replaces the parts that it runs. Times need
a machine with nothing else to do; smallest and growth do not depend on time.
"""

from __future__ import annotations

import argparse
import gc
import json
import statistics
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import tvm_dtr
from tvm_dtr import models
from tvm_dtr.errors import BudgetError, ThrashError
from tvm_dtr.models.tree_lstm import complete_tree
from tvm_dtr.verify import StockVM

FRACTIONS = (0.5, 0.3)
MODELS = ("lstm-loop", "tree-lstm", "unrolled-gan")
RESULTS = Path(__file__).parent / "results" / "control_flow.json"
Row = dict[str, Any]


def made_up(program: Any, sizes: dict[str, int], fixed: Row) -> Row:
    random = np.random.default_rng(0)
    inputs: Row = {}
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


def workload(name: str) -> tuple[Any, Row]:
    """A program and the inputs of a step: LSTM over 100 rows, a tree of depth 7, 40 inner steps."""
    sgd = tvm_dtr.SGD(lr=0.01)
    if name == "unrolled-gan":
        model = models.unrolled_gan(batch=256, seed=0)
        program = tvm_dtr.build(model, loss="output", optimizer=sgd, freeze=["disc.*"])
        inputs = made_up(program, {}, {"inner": np.int64(40)})
    else:
        batch = {"lstm-loop": 128, "tree-lstm": 64, "resnet20": 32}[name]
        program = tvm_dtr.build(models.make(name, batch=batch), loss="cross_entropy", optimizer=sgd)
        tree = complete_tree(7)
        sizes = {"time": 100, "nodes": len(tree["left"])}
        inputs = made_up(program, sizes, tree if name == "tree-lstm" else {})
    if program.control_flow:
        program.measure(inputs)
    return program, inputs


def same(a: dict[str, np.ndarray], b: dict[str, np.ndarray]) -> bool:
    return all(a[name].tobytes() == np.asarray(b[name]).tobytes() for name in a)


def run(program: Any, inputs: Row, budget: int, steps: int, **options: Any) -> Row:
    """Steps under the budget and without one in turns."""
    row: Row = {"budget_bytes": budget, "budget_fraction": budget / program.unbudgeted_peak_bytes}
    free = tvm_dtr.VirtualMachine(program)
    try:
        tight = tvm_dtr.VirtualMachine(program, memory_budget=budget, **options)
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
        return row | {"result": "oom" if isinstance(error, BudgetError) else "thrash"}
    counters, stats = tight.counters(), tight.stats
    searching, placing = stats["search_seconds"], counters["placing_seconds"]
    return row | {
        "result": "ok",
        "policy": tight.policy,
        "slowdown": statistics.median(times[tight][1:]) / statistics.median(times[free][1:]),
        "recomputed_cost": counters["remat_cost"] / counters["compute_cost"],
        "evictions": stats["evictions"],
        "rematerializations": stats["rematerializations"],
        "pinned_bytes": stats["pinned_bytes"],
        "peak_bytes": peak,
        "within_budget": peak <= budget,
        "bitwise_equal": equal,
        "decision_ns_per_op": 1e9 * (searching - placing) / counters["calls"],
        "decision_ns_per_eviction": 1e9 * (searching - placing) / max(stats["evictions"], 1),
        "placing_ns_per_op": 1e9 * placing / counters["calls"],
    }


def slowdown(steps: int, names: Sequence[str]) -> Iterator[Row]:
    for name in names:
        program, inputs = workload(name)
        peak = program.unbudgeted_peak_bytes
        given = {s.name: np.asarray(inputs.get(s.name, s.default)) for s in program.inputs}
        vm = tvm_dtr.VirtualMachine(program)
        head = {"model": name, "unbudgeted_peak_bytes": peak}
        head["equal_to_stock"] = same(vm.step(**inputs), StockVM(program).step(**given))
        pinned = vm.stats["pinned_bytes"]
        for fraction in FRACTIONS:
            budgets = {"the peak": int(peak * fraction)}
            budgets["the peak above what is pinned"] = int(pinned + (peak - pinned) * fraction)
            for of, budget in budgets.items():
                yield head | {"fraction": fraction, "of": of} | run(program, inputs, budget, steps)


def smallest(steps: int, names: Sequence[str]) -> Iterator[Row]:
    for name in names:
        program, inputs = workload(name)
        peak = program.unbudgeted_peak_bytes
        low, high, least = 0.0, 1.0, None
        while high - low > 0.01:
            middle = (low + high) / 2
            found = run(program, inputs, int(peak * middle), 2)
            if found["result"] == "ok":
                high, least = middle, found
            else:
                low = middle
            gc.collect()
        assert least is not None
        kept = ("budget_bytes", "budget_fraction", "recomputed_cost", "evictions", "pinned_bytes")
        kept += ("bitwise_equal", "within_budget", "policy")
        yield {"model": name, "unbudgeted_peak_bytes": peak} | {k: least[k] for k in kept}


def growth(steps: int, names: Sequence[str], count: int = 500) -> Iterator[Row]:
    model = models.lstm_loop(batch=16, seed=0, features=16, width=64)
    program = tvm_dtr.build(model, loss="cross_entropy", optimizer=tvm_dtr.Adam())
    peak = program.measure(made_up(program, {"time": 100}, {}))
    vm = tvm_dtr.VirtualMachine(program, memory_budget=peak // 2)
    names = ("active_bytes", "live_storages", "live_tensors", "live_ops", "live_outputs")
    held, resident, evictions = set(), [], 0
    for step in range(count):
        vm.step(**made_up(program, {"time": 1 + 37 * step % 100}, {}))
        evictions += vm.stats["evictions"]
        assert vm.stats["peak_bytes"] <= peak // 2
        if step > 0:
            counters = vm.counters()
            held.add(tuple(counters[name] for name in names))
        if step % 100 == 99:
            gc.collect()
            resident.append(resident_bytes())
    yield {
        "model": "lstm-loop of 64, lengths 1 to 100",
        "steps": count,
        "budget_bytes": peak // 2,
        "unbudgeted_peak_bytes": peak,
        "evictions": evictions,
        "distinct_states_after_steps": len(held),
        "held_after_steps": [dict(zip(names, values, strict=True)) for values in sorted(held)],
        "resident_bytes_every_100_steps": resident,
    }


def resident_bytes() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise OSError("no VmRSS in /proc/self/status")


def decisions(steps: int, names: Sequence[str]) -> Iterator[Row]:
    for policy in ("dtr-up", "dtr-eq"):
        cost = {}
        for name in ("tree-lstm", "resnet20"):
            program, inputs = workload(name)
            budget = program.unbudgeted_peak_bytes // 2
            row = run(program, inputs, budget, steps, policy=policy)
            cost[name] = row.get("decision_ns_per_op")
            yield {"model": name, "policy": policy} | row
        if None not in cost.values():
            yield {"policy": policy, "tree_over_resnet": cost["tree-lstm"] / cost["resnet20"]}


PARTS = {"slowdown": slowdown, "smallest": smallest, "growth": growth, "decisions": decisions}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("parts", nargs="*", choices=[[], *PARTS], help="all, if none is named")
    parser.add_argument("--steps", type=int, default=7)
    parser.add_argument("--models", default=",".join(MODELS), help="of slowdown and smallest")
    arguments = parser.parse_args()
    for part in arguments.parts or PARTS:
        new = []
        for row in PARTS[part](arguments.steps, arguments.models.split(",")):
            new.append({"part": part} | row)
            print(json.dumps(new[-1]), flush=True)
        replaced = {(part, row.get("model")) for row in new}
        rows = json.loads(RESULTS.read_text())["rows"] if RESULTS.exists() else []
        rows = [row for row in rows if (row["part"], row.get("model")) not in replaced]
        RESULTS.write_text(json.dumps({"rows": rows + new}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
