"""Step time against PyTorch eager: the same model, weights, batch and threads, steps in turn.

PyTorch runs in a process of its own, which may have another Python: it is no dependency of this
project. Both processes sleep while the other runs. Times are medians over the rounds but the
first two. Writes JSON and a Markdown table:

  python benchmarks/pytorch.py --torch-python VENV/bin/python -o benchmarks/results/pytorch
"""

from __future__ import annotations

import argparse
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from budgets import machine

import tvm_dtr
from tvm_dtr import models
from tvm_dtr.cli.files import replacing, write_rows
from tvm_dtr.cli.synthetic import synthetic_inputs

THREADS = os.environ.get("TVM_NUM_THREADS", str(os.cpu_count()))
MODELS = "resnet32:64,resnet50:16,mobilenet:64,vgg16:64,unet:16,gpt:16,lstm:64"
WARM_UP = 2


class Torch:
    """The other process; ``step()`` gives the seconds of one step."""

    def __init__(self, python: str, model: str, batch: str, clock: str) -> None:
        worker = str(Path(__file__).with_name("torch_worker.py"))
        environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
        self.process = subprocess.Popen(
            [python, worker, model, batch, THREADS, clock],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**environment, "OMP_NUM_THREADS": THREADS},
        )
        answer = self._answer().split()
        self.loss = float(answer[1])

    def step(self) -> float:
        assert self.process.stdin is not None
        self.process.stdin.write("step\n")
        self.process.stdin.flush()
        return float(self._answer())

    def close(self) -> None:
        self.process.terminate()
        self.process.wait()

    def _answer(self) -> str:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(
                "the process with PyTorch ended: does --torch-python have torch, onnx?"
            )
        return line


def main() -> None:
    arguments = _arguments()
    rows: list[dict[str, Any]] = []
    for entry in arguments.models.split(","):
        name, batch = entry.split(":")
        rows.append(compare(name, int(batch), arguments))
        row = rows[-1]
        print(
            f"{name:12} ours {row['step_seconds'] * 1e3:8.1f} ms  "
            f"PyTorch {row['torch_seconds'] * 1e3:8.1f} ms  ratio {row['ratio']:.2f}",
            flush=True,
        )
        write_rows(arguments.output + ".json", rows)
        with replacing(arguments.output + ".md") as draft:
            draft.write_text(as_markdown(rows, arguments), encoding="utf-8")
    print(f"geometric mean {geometric_mean(rows):.2f}")


def compare(name: str, batch: int, arguments: Any) -> dict[str, Any]:
    """The row of one model."""
    model = models.make(name, batch=batch)
    program = tvm_dtr.build(model, loss="cross_entropy", optimizer=tvm_dtr.SGD(0.01))
    inputs = synthetic_inputs(program, seed=0)
    vm = tvm_dtr.VirtualMachine(program)
    clock = getattr(time, arguments.clock)
    ours: list[float] = []
    theirs: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        path, arrays = str(Path(folder) / "model.onnx"), str(Path(folder) / "batch.npz")
        Path(path).write_bytes(model.SerializeToString())
        np.savez(arrays, **inputs)
        torch = Torch(arguments.torch_python, path, arrays, arguments.clock)
        loss = float(vm.step(**inputs)["loss"])
        if not math.isclose(loss, torch.loss, rel_tol=1e-3):
            raise SystemExit(f"{name}: our first loss is {loss}, PyTorch's {torch.loss}")
        for _ in range(arguments.rounds):
            start = clock()
            vm.step(**inputs)
            ours.append(clock() - start)
            theirs.append(torch.step())
        torch.close()
    left, right = (statistics.median(times[WARM_UP:]) for times in (ours, theirs))
    ratios = sorted(a / b for a, b in zip(ours[WARM_UP:], theirs[WARM_UP:], strict=True))
    return {
        "model": name,
        "batch": batch,
        "threads": int(THREADS),
        "step_seconds": left,
        "torch_seconds": right,
        "ratio": statistics.median(ratios),
        "best_ratio": min(ours[WARM_UP:]) / min(theirs[WARM_UP:]),
        "loss": loss,
        "torch_loss": torch.loss,
    }


def geometric_mean(rows: list[dict[str, Any]]) -> float:
    return math.exp(statistics.fmean(math.log(row["ratio"]) for row in rows))


def as_markdown(rows: list[dict[str, Any]], arguments: Any) -> str:
    lines = [
        "# Step time against PyTorch eager",
        "",
        f"{machine()}, {THREADS} threads on both sides. Forward, loss, backward and SGD; the same",
        "model, weights and batch; steps in turn. *Ratio*: ours over PyTorch's, the median over",
        "the rounds; *least*: of the least times. Made by",
        f"`python benchmarks/pytorch.py --models {arguments.models} --rounds {arguments.rounds} "
        f"--clock {arguments.clock}`.",
        "",
        "| model | batch | ours ms | PyTorch ms | ratio | least |",
        "|---|--:|--:|--:|--:|--:|",
    ]
    for row in rows:
        cells = [row["model"], str(row["batch"]), f"{row['step_seconds'] * 1e3:.1f}"]
        cells += [f"{row['torch_seconds'] * 1e3:.1f}", f"{row['ratio']:.2f}"]
        lines.append("| " + " | ".join([*cells, f"{row['best_ratio']:.2f}"]) + " |")
    lines.append(f"| geometric mean | | | | {geometric_mean(rows):.2f} | |")
    return "\n".join(lines) + "\n"


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--models", default=MODELS, help=f"NAME:BATCH,... (default {MODELS})")
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--torch-python", default=sys.executable, help="a Python that has torch")
    parser.add_argument(
        "--clock",
        choices=("perf_counter", "process_time"),
        default="perf_counter",
        help="process_time is the processor's time, for a busy machine and TVM_NUM_THREADS=1",
    )
    parser.add_argument("-o", "--output", default="benchmarks/results/pytorch")
    return parser.parse_args()


if __name__ == "__main__":
    main()
