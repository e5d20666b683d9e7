"""What recording an event trace costs: steps with and without, in turn, in one process.

    python benchmarks/trace_overhead.py [--models resnet20,gpt] [--threads 1,2] [--seconds 20]

Writes benchmarks/results/trace_overhead.json and .md, and goes on from what is there. A pair is a
step without a trace and one with, in a file of its own; which comes first alternates. The ratio is
the median of the pairs', with the interval that holds the medians of 95 of 100 resamples. The files
are new each time: cutting one off to write it again is work that the system goes on with on the
other core during the step. Each number of threads has a process of its own, as TVM reads it once.

A machine's speed varies more from step to step than a trace costs, so the last column counts it:
records of the step times nanoseconds of a record, over the step's time. What a record takes is the
difference between steps with and without a trace of an LSTM for one row, whose ops are so short
that it shows.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
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
TINY = ("lstm", 1)  # what a record takes is measured on it
RESULTS = Path(__file__).parent / "results" / "trace_overhead.json"
Pairs = list[tuple[float, float]]  # seconds of a step without a trace, and with one


def machine(name: str, batch: int, budget: str | None) -> tuple[Any, dict[str, Any]]:
    """(a virtual machine whose policy is chosen for good, inputs of its step)."""
    model = models.make(name, batch=batch)
    program = tvm_dtr.build(model, loss="cross_entropy", optimizer=tvm_dtr.SGD(lr=0.01))
    inputs = synthetic_inputs(program, 0)
    vm = tvm_dtr.VirtualMachine(program, memory_budget=budget)
    for _ in range(3):
        vm.step(**inputs)
    return vm, inputs


def step_seconds(vm: Any, inputs: dict[str, Any], path: Path | None) -> float:
    if path is not None:
        vm.start_trace(path)
    vm.step(**inputs)
    seconds: float = vm.stats["step_seconds"]
    if path is not None:
        vm.stop_trace()
    return seconds


def in_turn(vm: Any, inputs: dict[str, Any], seconds: float) -> tuple[Pairs, int]:
    """(pairs, records of a step's trace)."""
    pairs: Pairs = []
    end = time.monotonic() + seconds
    with tempfile.TemporaryDirectory() as folder:
        while time.monotonic() < end or len(pairs) < 2:
            path = Path(folder) / f"{len(pairs)}.dtrace"
            taken = [0.0, 0.0]
            for recorded in (False, True) if len(pairs) % 2 else (True, False):
                taken[recorded] = step_seconds(vm, inputs, path if recorded else None)
            records = len(read_events(path))
            path.unlink()
            pairs.append((taken[0], taken[1]))
    return pairs, records


def interval(values: list[float]) -> tuple[float, float]:
    draw = random.Random(0)
    found = sorted(statistics.median(draw.choices(values, k=len(values))) for _ in range(400))
    return found[9], found[-10]


def measure(name: str, seconds: float) -> dict[str, Any]:
    batch, budget = MODELS[name]
    pairs, records = in_turn(*machine(name, batch, budget), seconds)
    ratios = [traced / plain for plain, traced in pairs]
    tiny, tiny_records = in_turn(*machine(*TINY, None), seconds / 4)
    extra = statistics.median(traced - plain for plain, traced in tiny)
    step = statistics.median(plain for plain, _ in pairs)
    return {
        "model": name,
        "batch": batch,
        "memory_budget": budget,
        "threads": int(os.environ["TVM_NUM_THREADS"]),
        "step_seconds": step,
        "ratio": statistics.median(ratios),
        "interval": interval(ratios),
        "pairs": len(pairs),
        "records_a_step": records,
        "record_nanoseconds": extra / tiny_records * 1e9,
        "counted": records * extra / tiny_records / step,
    }


def measure_elsewhere(name: str, threads: int, seconds: float) -> dict[str, Any]:
    """``measure`` in a process with that many threads."""
    command = [sys.executable, __file__, "--measure", name, "--seconds", str(seconds)]
    environment = {**os.environ, "TVM_NUM_THREADS": str(threads)}
    printed = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE).stdout
    row: dict[str, Any] = json.loads(printed.splitlines()[-1])
    return row


def write(path: Path, rows: list[dict[str, Any]]) -> None:
    path.write_text(json.dumps({"rows": rows}, indent=1) + "\n", encoding="utf-8")
    lines = [
        "# What a trace costs",
        "",
        "By `python benchmarks/trace_overhead.py`: a step with a trace over one without, in turn, "
        "median of the pairs and the interval that holds 95 % of resampled medians. Counted: the "
        "step's records times what one takes, over the step's time.",
        "",
        "| model | batch | budget | threads | step | ratio | records | ns a record | counted |",
        "|---|--:|--:|--:|--:|--:|--:|--:|--:|",
    ]
    lines += [
        f"| {row['model']} | {row['batch']} | {row['memory_budget'] or 'none'} | "
        f"{row['threads']} | {row['step_seconds'] * 1e3:.1f} ms | {row['ratio']:.3f} "
        f"({row['interval'][0]:.3f} to {row['interval'][1]:.3f}) | {row['records_a_step']} | "
        f"{row['record_nanoseconds']:.0f} | {100 * row['counted']:.2f} % |"
        for row in rows
    ]
    path.with_suffix(".md").write_text("\n".join(lines) + "\n", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--seconds", type=float, default=20, help="for each row")
    parser.add_argument("--json", type=Path, default=RESULTS)
    parser.add_argument("--anew", action="store_true", help="measure again what is there")
    parser.add_argument("--measure", metavar="MODEL", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure:
        print(json.dumps(measure(arguments.measure, arguments.seconds)))
        return
    there = arguments.json.exists() and not arguments.anew
    rows = json.loads(arguments.json.read_text())["rows"] if there else []
    done = {(row["model"], row["threads"]) for row in rows}
    for threads in map(int, arguments.threads.split(",")):
        for name in arguments.models.split(","):
            if (name, threads) not in done:
                rows.append(measure_elsewhere(name, threads, arguments.seconds))
                print(rows[-1], flush=True)
                write(arguments.json, rows)


if __name__ == "__main__":
    main()
