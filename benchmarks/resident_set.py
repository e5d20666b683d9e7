"""What the operating system sees: the resident set of a process that trains under a budget.

Each case runs in a fresh process: the program is loaded, the high-water mark of the resident set
(VmHWM) is reset, then a virtual machine is made and runs its steps. The growth from before the
machine to the high-water mark holds what the budget counts, and besides it kernels' code, metadata
and the interpreter's own memory: what they take is measured without a budget, as the growth there
less the peak that the machine reports. Growth without them must stay within the budget + 8 MiB.

  python benchmarks/resident_set.py -o benchmarks/results/resident_set
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ALLOWED_BYTES = 8 << 20
CASES = "resnet110:40%,resnet110:30%,unet:50%"
MIB = 1 << 20


def main() -> None:
    arguments = _arguments()
    if arguments.child:
        print(json.dumps(run_child(*arguments.child)))
        return
    from tvm_dtr import models

    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        for model, budgets in _cases(arguments.cases).items():
            path = Path(folder) / f"{model}.tdtr"
            build(models.make(model, batch=arguments.batch), path)
            for row in measure(path, budgets, arguments.steps, arguments.arena):
                rows.append({"model": model, "batch": arguments.batch, **row})
                print(line(rows[-1]), flush=True)
    write(rows, arguments.output)
    if not all(row["ok"] for row in rows):
        sys.exit(1)


def _cases(text: str) -> dict[str, list[str]]:
    cases: dict[str, list[str]] = {}
    for case in text.split(","):
        model, budget = case.split(":")
        cases.setdefault(model, []).append(budget)
    return cases


def build(model: Any, path: Path) -> None:
    """Compiles an ONNX model into a program file."""
    import tvm_dtr

    program = tvm_dtr.build(model, loss="cross_entropy", optimizer=tvm_dtr.SGD(0.01))
    program.save(path)


def measure(
    program: Path, budgets: list[str], steps: int, arena: str = "paged"
) -> list[dict[str, Any]]:
    """A row for each budget, the control without one first."""
    control = _spawn(program, "none", steps, arena)
    overhead = max(control["growth_bytes"] - control["peak_bytes"], 0)
    rows = []
    for budget, run in [
        ("none", control),
        *((b, _spawn(program, b, steps, arena)) for b in budgets),
    ]:
        allowed = run["peak_bytes"] if budget == "none" else run["budget_bytes"]
        over = run["growth_bytes"] - overhead - allowed
        rows.append(
            run
            | {
                "memory_budget": budget,
                "steps": steps,
                "arena": arena,
                "overhead_bytes": overhead,
                "over_bytes": over,
                "ok": over <= ALLOWED_BYTES,
            }
        )
    return rows


def _spawn(program: Path, budget: str, steps: int, arena: str) -> dict[str, Any]:
    command = [sys.executable, __file__, "--child", str(program), budget, str(steps), arena]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr)
    return json.loads(done.stdout.splitlines()[-1])


def run_child(program_path: str, budget: str, steps: str, arena: str) -> dict[str, Any]:
    """In the fresh process: growth of the resident set while a machine runs its steps."""
    import tvm_dtr
    from tvm_dtr.cli.synthetic import synthetic_inputs

    program = tvm_dtr.load(program_path)
    inputs = synthetic_inputs(program, seed=0)
    Path("/proc/self/clear_refs").write_text("5")  # VmHWM starts anew at VmRSS
    before = _status("VmRSS")
    vm = tvm_dtr.VirtualMachine(
        program, memory_budget=None if budget == "none" else budget, arena=arena
    )
    most = 0
    evictions = 0
    for _ in range(int(steps)):
        vm.step(**inputs)
        most = max(most, vm.memory.peak)
        evictions += vm.stats["evictions"]
    return {
        "growth_bytes": _status("VmHWM") - before,
        "peak_bytes": most,
        "budget_bytes": vm.memory.budget,
        "evictions": evictions,
    }


def _status(field: str) -> int:
    text = Path("/proc/self/status").read_text(encoding="ascii")
    return int(text.split(f"{field}:")[1].split()[0]) * 1024


def line(row: dict[str, Any]) -> str:
    budget = "-" if row["budget_bytes"] is None else f"{row['budget_bytes'] / MIB:.1f}"
    return (
        f"{row['model']:10} {row['memory_budget']:>5} budget {budget:>7} MiB, growth "
        f"{row['growth_bytes'] / MIB:7.1f}, of which beside the arena "
        f"{row['overhead_bytes'] / MIB:5.1f}, over the budget {row['over_bytes'] / MIB:6.1f}: "
        f"{'ok' if row['ok'] else 'TOO MUCH'}"
    )


def write(rows: list[dict[str, Any]], output: str) -> None:
    from tvm_dtr.cli.files import replacing, write_rows

    write_rows(output + ".json", rows)
    text = ["# Resident set", "", "MiB; how: benchmarks/resident_set.py.", ""]
    text.append(
        "| model | batch | steps | budget | in bytes | growth of the resident set | "
        "without a budget, beside the arena | over the budget |"
    )
    text.append("|---|--:|--:|--:|--:|--:|--:|--:|")
    for r in rows:
        size = "-" if r["budget_bytes"] is None else f"{r['budget_bytes'] / MIB:.1f}"
        text.append(
            f"| {r['model']} | {r['batch']} | {r['steps']} | {r['memory_budget']} | {size} | "
            f"{r['growth_bytes'] / MIB:.1f} | {r['overhead_bytes'] / MIB:.1f} | "
            f"{r['over_bytes'] / MIB:.1f} |"
        )
    with replacing(output + ".md") as draft:
        draft.write_text("\n".join(text) + "\n", encoding="utf-8")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", default=CASES, metavar="MODEL:BUDGET,...")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--arena", default="paged")
    parser.add_argument("-o", "--output", default="benchmarks/results/resident_set")
    parser.add_argument("--child", nargs=4, help=argparse.SUPPRESS)
    return parser.parse_args()


if __name__ == "__main__":
    main()
