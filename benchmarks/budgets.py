"""Peak, step time and exactness of training steps at several memory budgets.

Every round runs one step on each VM in turn, the stock Relay VM among them, so that a slow moment
of the machine meets all alike; step times are medians over the rounds but the first. Each tensor
of each step is compared bit by bit with the stock VM's. Writes JSON and a Markdown table:

  python benchmarks/budgets.py --models resnet20,resnet32 -o benchmarks/results/budgets
"""

from __future__ import annotations

import argparse
import gc
import platform
import statistics
import time
from pathlib import Path
from typing import Any

import tvm_dtr
from tvm_dtr import models
from tvm_dtr.cli.files import replacing, write_rows
from tvm_dtr.cli.synthetic import synthetic_inputs
from tvm_dtr.errors import BudgetError, ThrashError
from tvm_dtr.threads import cores
from tvm_dtr.verify import StockVM, Verifier

MODELS = "resnet20,resnet32,resnet110,vgg16,mobilenet"
BUDGETS = "none,80%,60%,40%,30%,halfway"


def main() -> None:
    arguments = _arguments()
    rows: list[dict[str, Any]] = []
    for name in arguments.models.split(","):
        print(f"{name}:", flush=True)
        program = tvm_dtr.build(
            models.make(name, batch=arguments.batch),
            loss="cross_entropy",
            optimizer=tvm_dtr.SGD(0.01),
        )
        rows += measure_model(name, program, arguments)
        gc.collect()
        write_rows(arguments.output + ".json", rows)
        with replacing(arguments.output + ".md") as draft:
            draft.write_text(as_markdown(rows, arguments), encoding="utf-8")


def measure_model(name: str, program: Any, arguments: Any) -> list[dict[str, Any]]:
    """The rows of one model: the stock VM, then each budget."""
    peak = tvm_dtr.VirtualMachine(program, memory_budget=None).stats["unbudgeted_peak_bytes"]
    smallest = smallest_budget(program)
    runs = [StockRun(program)]
    for budget in arguments.budgets.split(","):
        size: Any = (smallest + peak) // 2 if budget == "halfway" else budget
        runs.append(BudgetRun(program, budget, size))
    inputs = synthetic_inputs(program, seed=0)
    with Verifier(program) as verifier:
        for _ in range(arguments.rounds):
            digests = verifier.step(inputs)
            for run in runs:
                run.step(inputs, verifier, digests)
    base = next((run for run in runs if run.budget == "none"), runs[0])
    rows = [run.row(base) for run in runs]
    for row in rows:
        row.update(model=name, batch=arguments.batch, unbudgeted_peak_bytes=peak)
        row.update(smallest_budget_bytes=smallest, budget_fraction=_fraction(row, peak))
        print(" ", _line(row), flush=True)
    return rows


def smallest_budget(program: Any) -> int:
    """Bytes; what the VM names when it refuses a budget of one byte."""
    try:
        tvm_dtr.VirtualMachine(program, memory_budget=1)
    except BudgetError as error:
        return error.needed_budget_bytes
    raise AssertionError("a budget of one byte was accepted")


class StockRun:
    """TVM's own VM in this process, for its step time."""

    budget, method, result = "stock", "stock VM", "ok"

    def __init__(self, program: Any) -> None:
        self.vm: Any = StockVM(program)
        self.seconds: list[float] = []
        self.bitwise = True

    def step(self, inputs: Any, verifier: Verifier, digests: dict[str, str]) -> None:
        start = time.perf_counter()
        outputs = self.vm.step(**inputs)
        self.seconds.append(time.perf_counter() - start)
        self.bitwise &= not list(verifier.mismatches(digests, outputs, self.vm.parameters))

    def row(self, base: StockRun) -> dict[str, Any]:
        return {
            "method": self.method,
            "memory_budget": self.budget,
            "result": self.result,
            "step_seconds": self.median(),
            "slowdown": self.median() / base.median() if self.seconds and base.seconds else None,
            "bitwise": self.bitwise,
        }

    def median(self) -> float:
        return statistics.median(self.seconds[1:] or self.seconds) if self.seconds else 0.0


class BudgetRun(StockRun):
    """A budgeted VM; once it has run out of memory it takes no more steps."""

    method = "dtr-eq"

    def __init__(self, program: Any, budget: str, size: Any) -> None:
        self.budget, self.result, self.bitwise = budget, "ok", True
        self.seconds = []
        self.vm = None
        self.error = ""
        try:
            self.vm = tvm_dtr.VirtualMachine(program, memory_budget=size)
        except BudgetError as error:
            self.result, self.error = "infeasible", str(error)

    def step(self, inputs: Any, verifier: Verifier, digests: dict[str, str]) -> None:
        if self.result != "ok":
            return
        try:
            super().step(inputs, verifier, digests)
        except BudgetError as error:
            self.result, self.error = "oom", str(error)
        except ThrashError as error:
            self.result, self.error = "thrash", str(error)

    def row(self, base: StockRun) -> dict[str, Any]:
        row = super().row(base)
        if self.result != "ok":
            row.update(step_seconds=None, slowdown=None, bitwise=None, error=self.error)
            return row
        stats = self.vm.stats
        names = ("budget_bytes", "peak_bytes", "pinned_bytes", "workspace_bytes")
        counts = ("remat_seconds", "search_seconds", "evictions", "rematerializations")
        row.update({name: stats[name] for name in (*names, *counts)})
        return row


def as_markdown(rows: list[dict[str, Any]], arguments: Any) -> str:
    """The table of ``rows`` with the machine and the command that made it."""
    command = (
        f"python benchmarks/budgets.py --models {arguments.models} --budgets {arguments.budgets}"
        f" --batch {arguments.batch} --rounds {arguments.rounds}"
    )
    lines = [
        "# Training steps under memory budgets",
        "",
        f"{machine()}. Batch {arguments.batch}, SGD, made-up data. Made by",
        f"`{command}`.",
        "",
        "The slowdown is against the same VM without a budget. *Bitwise*: every output, parameter",
        f"and running statistic of {arguments.rounds} steps equals that of TVM's own VM.",
        "",
        "| model | budget | budget MiB | peak MiB | step ms | slowdown | evictions"
        " | rematerializations | bitwise |",
        "|---|---|--:|--:|--:|--:|--:|--:|---|",
    ]
    return "\n".join([*lines, *(_markdown_row(row) for row in rows)]) + "\n"


def machine() -> str:
    """Processor, cores, system and Python, in words."""
    model = platform.processor() or platform.machine()
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            model = line.split(":", 1)[1].strip()
            break
    return f"{model}, {cores()} cores, {platform.system()}, Python {platform.python_version()}"


def _markdown_row(row: dict[str, Any]) -> str:
    if row["result"] != "ok":
        return f"| {row['model']} | {row['memory_budget']} | {row['result']} |" + " |" * 6
    slowdown = "" if row["slowdown"] is None else f"{row['slowdown']:.3f}"
    cells = [
        row["model"],
        row["memory_budget"],
        _mebibytes(row.get("budget_bytes")),
        _mebibytes(row.get("peak_bytes")),
        f"{row['step_seconds'] * 1e3:.1f}",
        slowdown,
        str(row.get("evictions", "")),
        str(row.get("rematerializations", "")),
        "yes" if row["bitwise"] else "NO",
    ]
    return "| " + " | ".join(cells) + " |"


def _mebibytes(count: int | None) -> str:
    return "" if count is None else f"{count / 2**20:.1f}"


def _fraction(row: dict[str, Any], peak: int) -> float | None:
    return None if row.get("budget_bytes") is None else row["budget_bytes"] / peak


def _line(row: dict[str, Any]) -> str:
    return _markdown_row(row).strip("| ").replace(" | ", "  ")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", default=MODELS, help=f"(default {MODELS})")
    parser.add_argument(
        "--budgets",
        default=BUDGETS,
        help="'halfway' lies between the smallest workable budget and the unbudgeted peak",
    )
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("-o", "--output", default="benchmarks/results/budgets")
    return parser.parse_args()


if __name__ == "__main__":
    main()
