"""Seconds to build training steps: from nothing, from cached kernels, from a cached program.

Each build is a process of its own, with the time it takes to import TVM told apart. A chain of
distinct lengths shows how the time grows with the number of ops. Writes JSON and a table:

  python benchmarks/build_time.py -o benchmarks/results/build_time
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from budgets import machine

from tvm_dtr.cli.files import replacing, write_rows

MODELS = "mlp160:64,resnet32:64,resnet50-224:8,resnet1202:16,mlp125:8,mlp1250:8"
BUILD = """
import json, sys, time
start = time.perf_counter()
import tvm
import tvm_dtr
import tvm_dtr.builder
import tvm_dtr.compile
from tvm_dtr import models
imported = time.perf_counter()
model = models.make(sys.argv[1], batch=int(sys.argv[2]))
start_build = time.perf_counter()
program = tvm_dtr.build(model, loss="cross_entropy", optimizer=tvm_dtr.SGD(0.01))
done = time.perf_counter()
print(json.dumps({
    "import_seconds": imported - start,
    "seconds": done - start_build,
    "ops": len(program.graph.ops),
    "kernels": len(program.graph.kernels),
}))
"""


def main() -> None:
    arguments = _arguments()
    rows: list[dict[str, Any]] = []
    for entry in arguments.models.split(","):
        name, batch = entry.split(":")
        rows.append(measure(name, int(batch)))
        print(json.dumps(rows[-1]), flush=True)
        write_rows(arguments.output + ".json", rows)
        with replacing(arguments.output + ".md") as draft:
            draft.write_text(as_markdown(rows, arguments), encoding="utf-8")


def measure(name: str, batch: int) -> dict[str, Any]:
    """Cold; then warm, from the program; then with the kernels alone."""
    with tempfile.TemporaryDirectory() as folder:
        cold = build(name, batch, folder)
        warm = build(name, batch, folder)
        _remove_programs(Path(folder))
        kernels = build(name, batch, folder)
    return {
        "model": name,
        "batch": batch,
        "ops": cold["ops"],
        "kernels": cold["kernels"],
        "cold_seconds": cold["seconds"],
        "warm_seconds": warm["seconds"],
        "kernels_cached_seconds": kernels["seconds"],
        "import_seconds": warm["import_seconds"],
        "cold_ms_per_op": cold["seconds"] * 1e3 / cold["ops"],
        "passes_ms_per_op": kernels["seconds"] * 1e3 / cold["ops"],
    }


def build(name: str, batch: int, folder: str) -> dict[str, Any]:
    environment = {**os.environ, "TVM_DTR_CACHE_DIR": folder, "TVM_DTR_CACHE_SIZE": "none"}
    command = [sys.executable, "-c", BUILD, name, str(batch)]
    output = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    return json.loads(output.stdout.splitlines()[-1])


def _remove_programs(folder: Path) -> None:
    """Programs are zip archives; kernels and costs stay."""
    for path in folder.rglob("*"):
        if path.is_file() and path.read_bytes()[65:67] == b"PK":
            path.unlink()


def as_markdown(rows: list[dict[str, Any]], arguments: Any) -> str:
    lines = [
        "# Time to build",
        "",
        f"{machine()}. Seconds of `tvm_dtr.build` in a new process, without the import of TVM.",
        "*Cold*: nothing cached; *kernels*: all kernels cached, but not the program; *warm*: the",
        f"program cached. Made by `python benchmarks/build_time.py --models {arguments.models}`.",
        "",
        "| model | batch | ops | kernels | cold | kernels | warm | warm / cold | cold ms an op"
        " | passes ms an op |",
        "|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for row in rows:
        cells = [row["model"], str(row["batch"]), str(row["ops"]), str(row["kernels"])]
        names = ("cold_seconds", "kernels_cached_seconds", "warm_seconds")
        cells += [f"{row[name]:.1f}" for name in names]
        cells.append(f"{row['warm_seconds'] / row['cold_seconds']:.3f}")
        cells += [f"{row['cold_ms_per_op']:.2f}", f"{row['passes_ms_per_op']:.2f}"]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--models", default=MODELS, help=f"NAME:BATCH,... (default {MODELS})")
    parser.add_argument("-o", "--output", default="benchmarks/results/build_time")
    return parser.parse_args()


if __name__ == "__main__":
    main()
