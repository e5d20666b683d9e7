"""The largest batch that trains in a process whose memory is limited, with and without a budget.

    python benchmarks/largest_batch.py --limit 256MiB resnet32 gpt unet

Each attempt is a process of its own that first loads the program, then may take `--limit` bytes of
address space more (RLIMIT_AS, what `ulimit -v` sets) and trains two steps: without a budget, or
within one a bit below the limit. What else the process needs of the limit (stacks and heaps of
threads, the batch) is the same for both. Writes benchmarks/results/largest_batch.json and .md;
rows of other models that are there already stay.
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
    if found is not None and not budgeted and found["evictions"]:
        found = None  # the system refused memory, and the machine evicted as if it had a budget
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


def predicted(model: str, limit: int) -> int:
    """The batch whose step should just fit without a budget, by the peaks of two small ones."""
    small = [
        tvm_dtr.build(
            models.make(model, batch=batch), loss="cross_entropy", optimizer=tvm_dtr.SGD(0.01)
        ).unbudgeted_peak_bytes
        for batch in (2, 4)
    ]
    row = max((small[1] - small[0]) // 2, 1)
    return max(int((limit * SHARE - small[0]) // row) + 2, 1)


def measured(model: str, limit: int) -> list[dict]:
    """A row without and one with a budget."""
    rows: list[dict] = []
    start = predicted(model, limit)
    with tempfile.TemporaryDirectory(prefix="tvm-dtr-batch-") as folder:
        for budgeted in (False, True):
            batch, stats, fails = largest(model, limit, budgeted, start, Path(folder))
            start = max(2 * batch, 1)  # with a budget
            slowdown = 1 + stats["remat_seconds"] / stats["compute_seconds"] if stats else None
            rows.append(
                {
                    "model": model,
                    "limit_bytes": limit,
                    "method": "budget" if budgeted else "none",
                    "batch": batch,
                    "fails": fails,
                    "peak_bytes": stats.get("peak_bytes"),
                    "slowdown": slowdown,
                }
            )
    return rows


def write(rows: list[dict]) -> None:
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "largest_batch.json").write_text(json.dumps({"rows": rows}, indent=2) + "\n")
    lines = [
        "# Largest batch\n\nA training step with SGD in a process that may take so much more "
        "address space (`ulimit -v`) once the program is loaded; the budget is "
        f"{SHARE:.0%} of that.\n",
        "| model | limit MiB | | largest batch that trains | smallest that does not | peak MiB "
        "| recomputation |",
        "|---|--:|---|--:|--:|--:|--:|",
    ]
    for row in rows:
        name = "no budget" if row["method"] == "none" else "budget"
        share = "-" if row["slowdown"] is None else f"{row['slowdown'] - 1:.0%}"
        peak = "-" if row["peak_bytes"] is None else f"{row['peak_bytes'] / 2**20:.0f}"
        lines.append(
            f"| {row['model']} | {row['limit_bytes'] // 2**20} | {name} | {row['batch']} "
            f"| {row['fails']} | {peak} | {share} |"
        )
    text = "\n".join(lines) + "\n"
    (RESULTS / "largest_batch.md").write_text(text)
    print(text)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="*", default=["resnet32", "gpt", "unet"])
    parser.add_argument("--limit", default="256MiB")
    parser.add_argument("--attempt", nargs=3, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.attempt:
        path, limit, budgeted = arguments.attempt
        attempt(path, int(limit), budgeted == "1")
        return
    limit = parse_budget(arguments.limit).bytes
    assert limit is not None
    file = RESULTS / "largest_batch.json"
    rows: list[dict] = json.loads(file.read_text())["rows"] if file.exists() else []
    for model in arguments.models:
        rows = [row for row in rows if row["model"] != model] + measured(model, limit)
        write(rows)


if __name__ == "__main__":
    main()
