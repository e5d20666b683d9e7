"""What computing cheap values again in the backward kernels saves, and what it costs.

Each training step is compiled twice, with and without; the two run in turn in one process. Times
are medians over the rounds but the first two. Writes JSON and a table:

  python benchmarks/recompute.py --models resnet32:64,gpt:16,mobilenet.onnx

A model is NAME:BATCH of tvm_dtr.models or an ONNX file, for example of those that
`benchmarks/saved_tensors.py record` makes.
"""

from __future__ import annotations

import argparse
import statistics
import time
from pathlib import Path
from typing import Any

from budgets import machine

import tvm_dtr
from tvm_dtr import models
from tvm_dtr.builder import make_training_step
from tvm_dtr.cli.files import replacing, write_rows
from tvm_dtr.cli.synthetic import synthetic_inputs
from tvm_dtr.compile import compile_step

MODELS = "resnet32:64,gpt:16,mobilenet:64,unet:16,lstm:64"
WARM_UP = 2


def main() -> None:
    arguments = _arguments()
    rows: list[dict[str, Any]] = []
    for entry in arguments.models.split(","):
        rows.append(compare(entry, arguments))
        row = rows[-1]
        print(
            f"{row['model']:12} peak {row['peak_bytes'] / row['peak_bytes_without']:.3f}, "
            f"step time {row['time_ratio']:.3f}, least {row['least_ratio']:.3f}",
            flush=True,
        )
        write_rows(arguments.output + ".json", rows)
        with replacing(arguments.output + ".md") as draft:
            draft.write_text(as_markdown(rows, arguments), encoding="utf-8")


def compare(entry: str, arguments: Any) -> dict[str, Any]:
    """The row of one model."""
    name, _, batch = entry.partition(":")
    model = models.make(name, batch=int(batch)) if batch else entry
    clock = getattr(time, arguments.clock)
    step = make_training_step(model, loss="cross_entropy", optimizer=tvm_dtr.SGD(0.01))
    programs = [compile_step(step, recompute=recompute) for recompute in (True, False)]
    inputs = synthetic_inputs(programs[0], seed=0)
    vms = [tvm_dtr.VirtualMachine(program) for program in programs]
    losses = [float(vm.step(**inputs)["loss"]) for vm in vms]
    times: list[list[float]] = [[], []]
    for turn in range(arguments.rounds):
        for which in (0, 1) if turn % 2 else (1, 0):
            start = clock()
            vms[which].step(**inputs)
            times[which].append(clock() - start)
    left, right = (each[WARM_UP:] for each in times)
    peaks = [int(p.replay.run(budget=None)["peak_bytes"]) for p in programs]
    return {
        "model": Path(name).stem,
        "batch": next(iter(inputs.values())).shape[0],
        "ops": len(programs[0].graph.ops),
        "ops_without": len(programs[1].graph.ops),
        "peak_bytes": peaks[0],
        "peak_bytes_without": peaks[1],
        "time_ratio": statistics.median(a / b for a, b in zip(left, right, strict=True)),
        "least_ratio": min(left) / min(right),
        "loss": losses[0],
        "loss_without": losses[1],
    }


def as_markdown(rows: list[dict[str, Any]], arguments: Any) -> str:
    lines = [
        "# Cheap values computed again in the backward kernels",
        "",
        f"{machine()}. Peak without a budget and time of a step, with over without, the two in",
        "turn; *least*: of the least times. Made by `benchmarks/recompute.py`, "
        f"`--clock {arguments.clock}`.",
        "",
        "| model | batch | ops without | ops | peak without MiB | peak MiB | peak | time | least |",
        "|---|--:|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for row in rows:
        before, after = row["peak_bytes_without"], row["peak_bytes"]
        cells = [row["model"], str(row["batch"]), str(row["ops_without"]), str(row["ops"])]
        cells += [f"{before / 2**20:.1f}", f"{after / 2**20:.1f}", f"{after / before:.3f}"]
        cells += [f"{row['time_ratio']:.3f}", f"{row['least_ratio']:.3f}"]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--models", default=MODELS, help=f"(default {MODELS})")
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument(
        "--clock",
        choices=("perf_counter", "process_time"),
        default="perf_counter",
        help="process_time is the processor's time, for a busy machine and TVM_NUM_THREADS=1",
    )
    parser.add_argument("-o", "--output", default="benchmarks/results/recompute")
    return parser.parse_args()


if __name__ == "__main__":
    main()
