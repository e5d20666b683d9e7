"""What recording an event trace costs: steps with and without, in turn, in one process.

    python benchmarks/trace_overhead.py [--models resnet20,gpt] [--rounds 30]

Writes benchmarks/results/trace_overhead.json and .md. Which of the two comes first alternates from
round to round; the ratio is that of the medians, and beside it stands the median of the rounds'
ratios. The file's header is written before a traced step's time starts, its last records and checks
within it.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
from pathlib import Path
from typing import Any

import tvm_dtr
from tvm_dtr import models
from tvm_dtr.cli.synthetic import synthetic_inputs
from tvm_dtr.trace import read_events

# (batch, budget): of an MLP nearly all is parameters, and an LSTM's ops are the shortest.
MODELS: dict[str, tuple[int, str | None]] = {
    "resnet20": (32, "60%"),
    "resnet32": (32, "60%"),
    "gpt": (8, "60%"),
    "lstm": (64, "90%"),
    "mlp": (64, None),
}
RESULTS = Path(__file__).parent / "results" / "trace_overhead.json"


def step_seconds(vm: Any, inputs: dict[str, Any], trace: Path | None) -> float:
    if trace is not None:
        vm.start_trace(trace)
    vm.step(**inputs)
    seconds: float = vm.stats["step_seconds"]
    if trace is not None:
        vm.stop_trace()
    return seconds


def measure(name: str, rounds: int) -> dict[str, Any]:
    batch, budget = MODELS[name]
    model = models.make(name, batch=batch)
    program = tvm_dtr.build(model, loss="cross_entropy", optimizer=tvm_dtr.SGD(lr=0.01))
    inputs = synthetic_inputs(program, 0)
    vm = tvm_dtr.VirtualMachine(program, memory_budget=budget)
    for _ in range(3):  # by then the policy is chosen for good
        vm.step(**inputs)
    plain: list[float] = []
    traced: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run.dtrace"
        for index in range(rounds):
            for recorded in (False, True) if index % 2 else (True, False):
                taken = step_seconds(vm, inputs, path if recorded else None)
                (traced if recorded else plain).append(taken)
        records, size = len(read_events(path)), path.stat().st_size
    ratios = [a / b for a, b in zip(traced, plain, strict=True)]
    return {
        "model": name,
        "batch": batch,
        "memory_budget": budget,
        "ratio": statistics.median(traced) / statistics.median(plain),
        "median_of_ratios": statistics.median(ratios),
        "step_seconds": statistics.median(plain),
        "records": records,
        "bytes": size,
        "rounds": rounds,
    }


def write(path: Path, rows: list[dict[str, Any]]) -> None:
    path.write_text(json.dumps({"rows": rows}, indent=1) + "\n", encoding="utf-8")
    lines = [
        "# What a trace costs",
        "",
        "By `python benchmarks/trace_overhead.py`: a traced step's time over that of one that is "
        "not, in turn.",
        "",
        "| model | batch | budget | step | ratio | median of ratios | records a step |",
        "|---|--:|--:|--:|--:|--:|--:|",
    ]
    lines += [
        f"| {row['model']} | {row['batch']} | {row['memory_budget'] or 'none'} | "
        f"{row['step_seconds'] * 1e3:.1f} ms | {row['ratio']:.4f} | "
        f"{row['median_of_ratios']:.4f} | {row['records']} |"
        for row in rows
    ]
    path.with_suffix(".md").write_text("\n".join(lines) + "\n", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--json", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    rows: list[dict[str, Any]] = []
    for name in arguments.models.split(","):
        rows.append(measure(name, arguments.rounds))
        print(rows[-1], flush=True)
        write(arguments.json, rows)


if __name__ == "__main__":
    main()
