"""Simulated against measured slowdown of training steps under memory budgets.

For each model: a VM without a budget and one for each budget take steps in turn, so that a slow
moment of the machine meets all alike. The simulation gets the trace that `tvm-dtr run --trace`
would write: the costs that the kernels had in the steps without a budget, and the step's time
outside of kernels. The policies are named, so that the VM decides by costs that are known; the
replay makes the VM's decisions and their time is taken from the trace. Writes JSON and Markdown:

  python benchmarks/prediction.py --models resnet20,resnet32 -o benchmarks/results/prediction
"""

from __future__ import annotations

import argparse
import gc
import statistics
import time
from pathlib import Path
from typing import Any

import tvm_dtr
from tvm_dtr import models
from tvm_dtr.cli.files import write_rows
from tvm_dtr.cli.synthetic import synthetic_inputs
from tvm_dtr.errors import BudgetError, ThrashError
from tvm_dtr.measured_costs import median_costs, with_costs
from tvm_dtr.replay import STEPS

MODELS = "resnet20,resnet32,resnet110,vgg16,mobilenet"
BUDGETS = "80%,60%,40%,30%"
WITHIN = 0.05


class Runner:
    """A VM, the times of its steps and what its kernels took in each."""

    def __init__(self, program: Any, budget: str | None) -> None:
        self.vm: Any = tvm_dtr.VirtualMachine(program, memory_budget=budget)
        if budget is not None:  # the policy that auto begins with, and stays
            policy = self.vm.policy
            self.vm = tvm_dtr.VirtualMachine(program, memory_budget=budget, policy=policy)
        self.seconds: list[float] = []
        self.costs: list[dict[str, float]] = []
        self.overhead: list[float] = []

    def step(self, inputs: Any) -> None:
        start = time.perf_counter()
        self.vm.step(**inputs)
        self.seconds.append(time.perf_counter() - start)
        self.costs.append(self.vm.measured_costs())
        stats = self.vm.stats
        kernels = stats["compute_seconds"] + stats["remat_seconds"]
        self.overhead.append(1e9 * (stats["step_seconds"] - kernels))


def predicted(program: Any, vm: Any, costs: dict[str, float], overhead_ns: float) -> float:
    """Slowdown: the decisions that the VM takes, at these costs."""
    run = program.replay.run(
        budget=vm.stats["budget_bytes"], policy=vm.policy, steps=STEPS, events=True
    )
    kernels = with_costs(program.graph, costs).kernels
    cost = [kernels[op.kernel].cost_ns for op in program.graph.ops]
    own = sum(cost[op] for kind, op in run["events"] if kind == "compute")
    again = sum(cost[op] for kind, op in run["events"] if kind == "rematerialize")
    return 1 + again / (own + overhead_ns)


def measure_model(name: str, batch: int, budgets: list[str], rounds: int) -> list[dict[str, Any]]:
    program = tvm_dtr.build(
        models.make(name, batch=batch), loss="cross_entropy", optimizer=tvm_dtr.SGD(0.01)
    )
    inputs = synthetic_inputs(program, seed=0)
    free = Runner(program, None)
    runners: dict[str, Runner] = {}
    rows = []
    for budget in budgets:
        try:
            runners[budget] = Runner(program, budget)
        except (BudgetError, ThrashError):
            rows.append({"trace": name, "memory_budget": budget, "result": "oom"})
    for _ in range(rounds):
        for runner in (free, *runners.values()):
            runner.step(inputs)
    costs, overhead = median_costs(free.costs[1:]), statistics.median(free.overhead[1:])
    built = {kernel.name: kernel.cost_ns for kernel in program.graph.kernels}
    for budget, runner in runners.items():
        ratios = [b / a for a, b in zip(free.seconds[1:], runner.seconds[1:], strict=True)]
        measured = statistics.median(ratios)
        simulated = predicted(program, runner.vm, costs, overhead)
        rows.append(
            {
                "trace": name,
                "batch": batch,
                "method": runner.vm.policy,
                "memory_budget": budget,
                "result": "ok",
                "measured_slowdown": measured,
                "measured_quartiles": statistics.quantiles(ratios, n=4)[::2],
                "simulated_slowdown": simulated,
                "simulated_with_built_costs": predicted(program, runner.vm, built, overhead),
                "error": simulated / measured - 1,
                "step_seconds": statistics.median(runner.seconds[1:]),
            }
        )
    return rows


def markdown(rows: list[dict[str, Any]]) -> str:
    lines = [
        "# Simulated against measured slowdown",
        "",
        "Made by `python benchmarks/prediction.py`: medians over steps taken in turn.",
        "",
        "| model | budget | policy | measured | quartiles | simulated | with costs of building |"
        " error |",
        "|---|--:|---|--:|--:|--:|--:|--:|",
    ]
    for row in rows:
        if row["result"] != "ok":
            lines.append(f"| {row['trace']} | {row['memory_budget']} | refused |" + " |" * 5)
            continue
        low, high = row["measured_quartiles"]
        lines.append(
            f"| {row['trace']} | {row['memory_budget']} | {row['method']} "
            f"| {row['measured_slowdown']:.3f} | {low:.3f} to {high:.3f} "
            f"| {row['simulated_slowdown']:.3f} | {row['simulated_with_built_costs']:.3f} "
            f"| {100 * row['error']:+.1f} % |"
        )
    good = [row for row in rows if row["result"] == "ok"]
    close = sum(abs(row["error"]) <= WITHIN for row in good)
    lines += ["", f"Within {100 * WITHIN:.0f} %: {close} of {len(good)}."]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", default=MODELS)
    parser.add_argument("--budgets", default=BUDGETS)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("-o", "--output", default="benchmarks/results/prediction")
    options = parser.parse_args()
    rows: list[dict[str, Any]] = []
    for name in options.models.split(","):
        rows += measure_model(name, options.batch, options.budgets.split(","), options.rounds)
        gc.collect()
        print(markdown(rows), flush=True)
        write_rows(options.output + ".json", rows)
        Path(options.output + ".md").write_text(markdown(rows), encoding="utf-8")


if __name__ == "__main__":
    main()
