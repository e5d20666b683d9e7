"""The largest batch that trains in a process whose memory is limited, with and without a budget.

    python benchmarks/largest_batch.py --model resnet20 --limit 512MiB

Each attempt is a process of its own that first loads the program, then may take `--limit` bytes of
address space more (RLIMIT_AS, what `ulimit -v` sets) and trains some steps: without a budget, or
within one a bit below the limit. Writes benchmarks/results/largest_batch.json and .md.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

import tvm_dtr
from tvm_dtr import models
from tvm_dtr.budget import parse_budget
from tvm_dtr.cli.synthetic import synthetic_inputs

RESULTS = Path(__file__).with_name("results")
SHARE = 0.75  # of the limit, for the budget: the rest is for the inputs and Python's own


def address_space() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    return pages * resource.getpagesize()


def attempt(program_file: str, limit: int, budgeted: bool) -> None:
    """Trains two steps; the exit status tells."""
    program = tvm_dtr.load(program_file)
    inputs = synthetic_inputs(program, 0)
    most = address_space() + limit
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    vm = tvm_dtr.VirtualMachine(program, memory_budget=int(limit * SHARE) if budgeted else None)
    for _ in range(2):
        vm.step(**inputs)
    print(json.dumps(vm.stats))


def trains(model: str, batch: int, limit: int, budgeted: bool, work: Path) -> dict | None:
    path = work / f"{model}-{batch}.tdtr"
    if not path.exists():
        program = tvm_dtr.build(
            models.make(model, batch=batch), loss="cross_entropy", optimizer=tvm_dtr.SGD(0.01)
        )
        program.save(path)
    command = [sys.executable, __file__, "--attempt", str(path), str(limit), str(int(budgeted))]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return json.loads(done.stdout.splitlines()[-1]) if done.returncode == 0 else None


def largest(model: str, limit: int, budgeted: bool, step: int, work: Path) -> tuple[int, dict]:
    """By doubling, then bisection to a multiple of ``step``."""
    works, stats, fails = 0, {}, None
    batch = step
    while fails is None or fails - works > step:
        found = trains(model, batch, limit, budgeted, work)
        if found is None:
            fails = batch
        else:
            works, stats = batch, found
        if fails is None:
            batch *= 2
        else:
            batch = works + max((fails - works) // (2 * step), 1) * step
        if fails is not None and fails - works <= step:
            break
    return works, stats


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="resnet20")
    parser.add_argument("--limit", default="256MiB")
    parser.add_argument("--step", type=int, default=16)
    parser.add_argument("--attempt", nargs=3, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.attempt:
        path, limit, budgeted = arguments.attempt
        attempt(path, int(limit), budgeted == "1")
        return
    limit = parse_budget(arguments.limit).bytes
    assert limit is not None
    rows = []
    with tempfile.TemporaryDirectory(prefix="tvm-dtr-batch-") as folder:
        for budgeted in (False, True):
            batch, stats = largest(arguments.model, limit, budgeted, arguments.step, Path(folder))
            slowdown = 1 + stats["remat_seconds"] / stats["compute_seconds"] if stats else None
            rows.append(
                {
                    "model": arguments.model,
                    "limit_bytes": limit,
                    "method": "budget" if budgeted else "none",
                    "batch": batch,
                    "peak_bytes": stats.get("peak_bytes"),
                    "slowdown": slowdown,
                }
            )
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "largest_batch.json").write_text(json.dumps({"rows": rows}, indent=2) + "\n")
    lines = [
        f"# Largest batch\n\n{arguments.model}, a training step with SGD, in a process that may "
        f"take {arguments.limit} more once the program is loaded (to {arguments.step}).\n",
        "| | largest batch | peak MiB | recomputation |",
        "|---|--:|--:|--:|",
    ]
    for row in rows:
        name = "no budget" if row["method"] == "none" else f"budget of {SHARE:.0%} of the limit"
        share = "-" if row["slowdown"] is None else f"{row['slowdown'] - 1:.0%}"
        peak = "-" if row["peak_bytes"] is None else f"{row['peak_bytes'] / 2**20:.0f}"
        lines.append(f"| {name} | {row['batch']} | {peak} | {share} |")
    text = "\n".join(lines) + "\n"
    (RESULTS / "largest_batch.md").write_text(text)
    print(text)


if __name__ == "__main__":
    main()
