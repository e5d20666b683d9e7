"""How long a report and its pictures take, and whether they say what the run said.

    python benchmarks/report_time.py [--models resnet32,gpt,tree-lstm]

Runs three steps of each model at 40 % of its peak with ``tvm-dtr run --trace``, then ``tvm-dtr
report --plots`` in a process of its own, whose seconds count, imports included. Writes
benchmarks/results/report_time.json and .md.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

# (batch, further options of run)
MODELS: dict[str, tuple[int, list[str]]] = {
    "resnet32": (64, []),
    "gpt": (8, []),
    "tree-lstm": (64, ["--length", "nodes=127..127"]),
}
RESULTS = Path(__file__).parent / "results" / "report_time.json"
COUNTS = ("budget_bytes", "evictions", "rematerializations")
SECONDS = ("compute_seconds", "remat_seconds", "search_seconds")


def tvm_dtr(*arguments: Any) -> float:
    """Seconds of a command in a process of its own."""
    start = time.perf_counter()
    command = [sys.executable, "-m", "tvm_dtr", *map(str, arguments)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - start


def rows_of(path: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))["rows"]
    return rows


def agree(run: dict[str, Any], report: dict[str, Any]) -> bool:
    """Counts and bytes exactly, times to the microsecond."""
    exact = all(run[name] == report[name] for name in COUNTS)
    timed = all(abs(run[name] - report[name]) < 1e-6 for name in SECONDS)
    return exact and timed and sum(report["roles_at_peak"].values()) == report["peak_bytes"]


def measure(name: str, folder: Path, rounds: int) -> dict[str, Any]:
    batch, options = MODELS[name]
    model, program, trace = (folder / f"{name}{end}" for end in (".onnx", ".tdtr", ".dtrace"))
    run, report = folder / "run.json", folder / "report.json"
    tvm_dtr("models", "make", name, "--batch", batch, "-o", model)
    tvm_dtr("build", model, "-o", program)
    budget = ["--memory-budget", "40%", "--steps", 3, *options]
    tvm_dtr("run", program, *budget, "--trace", trace, "--json", run)
    outputs = ["-o", folder / "report.html", "--plots", folder, "--json", report]
    seconds = [tvm_dtr("report", trace, *outputs) for _ in range(rounds)]
    row = rows_of(report)[0]
    return {
        "model": name,
        "batch": batch,
        "seconds": statistics.median(seconds),
        "agrees": agree(rows_of(run)[-1], row),
        "evictions": row["evictions"],
        "trace_bytes": trace.stat().st_size,
        "page_bytes": (folder / "report.html").stat().st_size,
    }


def write(path: Path, rows: list[dict[str, Any]]) -> None:
    path.write_text(json.dumps({"rows": rows}, indent=1) + "\n", encoding="utf-8")
    lines = [
        "# Reports and pictures by one command",
        "",
        "By `python benchmarks/report_time.py`: `tvm-dtr report --plots` on a trace of three steps "
        "at 40 % of the peak.",
        "",
        "| model | batch | seconds | agrees with the run | evictions | trace | page |",
        "|---|--:|--:|---|--:|--:|--:|",
    ]
    lines += [
        f"| {row['model']} | {row['batch']} | {row['seconds']:.1f} | "
        f"{'yes' if row['agrees'] else 'no'} | {row['evictions']} | "
        f"{row['trace_bytes'] >> 10} KiB | {row['page_bytes'] >> 10} KiB |"
        for row in rows
    ]
    path.with_suffix(".md").write_text("\n".join(lines) + "\n", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    rows: list[dict[str, Any]] = []
    for name in arguments.models.split(","):
        with tempfile.TemporaryDirectory() as folder:
            rows.append(measure(name, Path(folder), arguments.rounds))
        print(rows[-1], flush=True)
        write(arguments.json, rows)


if __name__ == "__main__":
    main()
