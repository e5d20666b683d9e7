"""The largest batch that trains in a process whose memory is limited, with and without a budget.

    python benchmarks/largest_batch.py --model resnet20 --limit 256MiB

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
from tvm_dtr.plugin import load_plugin

RESULTS = Path(__file__).with_name("results")
MOST_SECONDS = 120  # of an attempt
SHARE = 0.75  # of the limit, for the budget: the rest is for the inputs and Python's own


def address_space() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    return pages * resource.getpagesize()


def attempt(program_file: str, limit: int, budgeted: bool) -> None:
    """Trains two steps; the exit status tells."""
    program = tvm_dtr.load(program_file)
    inputs = synthetic_inputs(program, 0)
    load_plugin()  # before the limit, as all code
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
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=MOST_SECONDS
        )
    except subprocess.TimeoutExpired:
        return None  # recomputation takes nearly all of the time
    found = json.loads(done.stdout.splitlines()[-1]) if done.returncode == 0 else None
    peak = "fails" if found is None else f"{found['peak_bytes'] / 2**20:.0f} MiB"
    print(f"{model}, batch {batch}, {'budget' if budgeted else 'no budget'}: {peak}", flush=True)
    return found


def largest(
    model: str, limit: int, budgeted: bool, start: int, work: Path
) -> tuple[int, dict, int]:
    """The largest batch that trains, what it measured, and the smallest that did not: by steps of
    a half, then bisection to an eighth. Each batch is another program to build."""
    works, stats, fails, batch = 0, {}, 0, start
    while not fails or fails - works > max(works // 8, 1):
        found = trains(model, batch, limit, budgeted, work)
        if found is None:
            fails = batch
        else:
            works, stats = batch, found
        batch = (works + fails) // 2 if fails else works * 3 // 2 + 1
    return works, stats, fails


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="resnet20")
    parser.add_argument("--limit", default="256MiB")
    parser.add_argument("--start", type=int, default=16, help="the batch to try first")
    parser.add_argument("--attempt", nargs=3, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.attempt:
        path, limit, budgeted = arguments.attempt
        attempt(path, int(limit), budgeted == "1")
        return
    limit = parse_budget(arguments.limit).bytes
    assert limit is not None
    rows: list[dict] = []
    start = arguments.start
    with tempfile.TemporaryDirectory(prefix="tvm-dtr-batch-") as folder:
        for budgeted in (False, True):
            batch, stats, fails = largest(arguments.model, limit, budgeted, start, Path(folder))
            start = max(2 * batch, 1)  # with a budget
            slowdown = 1 + stats["remat_seconds"] / stats["compute_seconds"] if stats else None
            rows.append(
                {
                    "model": arguments.model,
                    "limit_bytes": limit,
                    "method": "budget" if budgeted else "none",
                    "batch": batch,
                    "fails": fails,
                    "peak_bytes": stats.get("peak_bytes"),
                    "slowdown": slowdown,
                }
            )
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "largest_batch.json").write_text(json.dumps({"rows": rows}, indent=2) + "\n")
    lines = [
        f"# Largest batch\n\n{arguments.model}, a training step with SGD, in a process that may "
        f"take {arguments.limit} more once the program is loaded.\n",
        "| | largest batch that trains | smallest that does not | peak MiB | recomputation |",
        "|---|--:|--:|--:|--:|",
    ]
    for row in rows:
        name = "no budget" if row["method"] == "none" else f"budget of {SHARE:.0%} of the limit"
        share = "-" if row["slowdown"] is None else f"{row['slowdown'] - 1:.0%}"
        peak = "-" if row["peak_bytes"] is None else f"{row['peak_bytes'] / 2**20:.0f}"
        lines.append(f"| {name} | {row['batch']} | {row['fails']} | {peak} | {share} |")
    text = "\n".join(lines) + "\n"
    (RESULTS / "largest_batch.md").write_text(text)
    print(text)


if __name__ == "__main__":
    main()
