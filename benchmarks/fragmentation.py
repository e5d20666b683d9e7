"""What fragmentation costs: smallest feasible budgets, and how full an arena is when it refuses.

The first table has, for each trace, the smallest budget at which a step still runs: with memory
that is only counted (no rounding, no fragmentation), with memory that is counted as the paged arena
rounds sizes, and with each arena and policy beside it.
The second replays sequences of allocations and frees, those of a step under several budgets with
memory that is only counted, on arenas of several capacities, and tells how much of the capacity
was asked for (live bytes and the block that was refused, as requested) when the first request
failed. TVM's pooled allocator (pages of 4 KiB, a freed block serves requests of its own rounded
size only) stands beside them, also with all that is pooled given back when it is full, to a device
that has no fragmentation of its own.

For programs a third table tells what the virtual machine does at those budgets, arena and policy
set to the same: whether the steps run, their peak against the budget, and whether their results are
bitwise those without a budget.

  python benchmarks/fragmentation.py TRACE... -o benchmarks/results/fragmentation --sizes sizes.txt
  build/arena_stress best-fit 10000000 sizes.txt    # built with -DTVM_DTR_TESTS=ON

A TRACE is a program (.tdtr), an OpGraph (.json, from `tvm-dtr run --trace`) or a DTR log (.log.gz).
"""

from __future__ import annotations

import argparse
import hashlib
import statistics
from collections import defaultdict
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from tvm_dtr import VirtualMachine, _core, load
from tvm_dtr.cli.files import replacing, write_rows
from tvm_dtr.cli.synthetic import synthetic_inputs
from tvm_dtr.errors import BudgetError, ThrashError
from tvm_dtr.program import is_program_file
from tvm_dtr.simulation import load_trace

CASES = (
    ("counting", "dtr-eq"),
    ("counting-rounded", "dtr-eq"),
    ("paged", "dtr-eq"),
    ("best-fit", "dtr-eq"),
    ("best-fit", "window"),
)
COUNTED = {"counted": "counting", "rounded": "counting-rounded"}
BUDGETS = (80, 60, 50, 40, 30)  # percent of the peak without a budget
CAPACITIES = range(60, 101, 5)  # percent of the live bytes at most
THRASH_LIMIT = 10.0
PAGE = 4096


def main() -> None:
    arguments = _arguments()
    rows: list[dict[str, Any]] = []
    sizes: list[int] = []
    for path in arguments.traces:
        trace = load_trace(path)
        trace.name = path.name
        sizes += [size for kind, _, size in _requests(trace.replay) if kind == "allocate"]
        rows += smallest_budgets(trace.name, trace.replay, trace.steps)
        if is_program_file(path):
            rows += on_the_machine(trace.name, load(path), rows)
        rows += utilisations(trace.name, trace.replay)
        for row in rows:
            if row["trace"] == trace.name:
                print(row, flush=True)
        write_rows(arguments.output + ".json", rows)
        with replacing(arguments.output + ".md") as draft:
            draft.write_text(as_markdown(rows), encoding="utf-8")
    if arguments.sizes:
        Path(arguments.sizes).write_text("\n".join(map(str, sizes)), encoding="ascii")


def _requests(replay: Any) -> list[tuple[str, int, int]]:
    return replay.run(arena="counting", allocations=True)["allocations"]


def smallest_budgets(name: str, replay: Any, steps: int) -> list[dict[str, Any]]:
    """A row for each arena and policy; ``at_counted``: what it does at the budget of the first."""
    peak = replay.run(arena="counting", steps=steps)["peak_bytes"]
    options: dict[str, Any] = {"thrash_limit": THRASH_LIMIT, "steps": steps}
    rows: list[dict[str, Any]] = []
    for arena, policy in CASES:
        smallest = replay.smallest_budget(arena=arena, policy=policy, tolerance=PAGE, **options)
        counted = rows[0]["budget_bytes"] if rows else smallest
        at = {
            percent: replay.run(
                arena=arena, policy=policy, budget=int(counted * (1 + percent / 100)), **options
            )["result"]
            for percent in (0, 1, 2, 5)
        }
        rows.append(
            {
                "trace": name,
                "table": "smallest",
                "method": f"{arena} {policy}",
                "budget_bytes": smallest,
                "budget_fraction": smallest / peak,
                "over_counted": smallest / counted,
                "at_counted": at,
            }
        )
    return rows


def on_the_machine(name: str, program: Any, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Of each arena and policy at its smallest budget, and at that of counted memory."""
    inputs = synthetic_inputs(program, seed=0)
    free = _digests(VirtualMachine(program), inputs)
    smallest = {
        row["method"]: row["budget_bytes"]
        for row in rows
        if row["trace"] == name and row["table"] == "smallest"
    }
    counted = {at: smallest.pop(f"{arena} dtr-eq") for at, arena in COUNTED.items()}
    found = []
    for method, budget in smallest.items():
        arena, policy = method.split()
        for at, limit in (("own", budget), *counted.items()):
            row = {"trace": name, "table": "machine", "method": method, "at": at}
            found.append(row | _machine_row(program, inputs, free, limit, arena, policy))
    return found


def _machine_row(
    program: Any, inputs: Any, free: dict[str, str], limit: int, arena: str, policy: str
) -> dict[str, Any]:
    row: dict[str, Any] = {"budget_bytes": limit}
    try:
        machine = VirtualMachine(
            program,
            memory_budget=limit,
            policy=policy,
            arena=arena,
            thrash_limit=THRASH_LIMIT,
        )
        bitwise = _digests(machine, inputs) == free
    except (BudgetError, ThrashError) as error:
        return row | {"result": type(error).__name__}
    peak = machine.memory.peak
    return row | {"result": "ok", "peak_bytes": peak, "held": peak <= limit, "bitwise": bitwise}


def _digests(machine: Any, inputs: Any) -> dict[str, str]:
    """Of all results of a step."""
    results = machine.step(**inputs) | {
        f"state {name}": machine.parameters[name] for name in machine.parameters
    }
    return {
        name: hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()
        for name, array in results.items()
    }


class Allocator(Protocol):
    def allocate(self, number: int, size: int) -> bool: ...
    def free(self, number: int) -> None: ...


class Pooled:
    """TVM's pooled allocator on a device of ``capacity`` bytes, which it fills until it is full.

    ``release``: at a refusal all that is pooled is given back, and the request tried again.
    """

    def __init__(self, capacity: int, release: bool) -> None:
        self.capacity, self.release = capacity, release
        self.used = 0
        self.pool: dict[int, int] = defaultdict(int)
        self.live: dict[int, int] = {}

    def allocate(self, number: int, size: int) -> bool:
        rounded = -(-max(size, 1) // PAGE) * PAGE
        if self.pool[rounded]:
            self.pool[rounded] -= 1
        else:
            if self.used + rounded > self.capacity and self.release:
                self.used -= sum(bytes_ * count for bytes_, count in self.pool.items())
                self.pool.clear()
            if self.used + rounded > self.capacity:
                return False
            self.used += rounded
        self.live[number] = rounded
        return True

    def free(self, number: int) -> None:
        self.pool[self.live.pop(number)] += 1


def utilisations(name: str, replay: Any) -> list[dict[str, Any]]:
    """Of each allocator: the share of the capacity asked for at its first refusal."""
    sequences = _sequences(replay)
    makers: dict[str, Any] = {
        "paged": lambda c: _core.Arena("paged", c),
        "best-fit": lambda c: _core.Arena("best-fit", c),
        "TVM pooled": lambda c: Pooled(c, release=False),
        "TVM pooled, giving back": lambda c: Pooled(c, release=True),
    }
    rows = []
    for method, make in makers.items():
        shares = []
        for events, peak in sequences:
            for percent in CAPACITIES:
                capacity = peak * percent // 100
                share = _at_failure(events, make(capacity), capacity)
                shares += [] if share is None else [share]
        rows.append(
            {
                "trace": name,
                "table": "utilisation",
                "method": method,
                "least": min(shares, default=1.0),
                "median": statistics.median(shares or [1.0]),
                "failures": len(shares),
            }
        )
    return rows


def _sequences(replay: Any) -> list[tuple[list[tuple[str, int, int]], int]]:
    """What is asked of memory that is only counted, under budgets that work; its live peak."""
    peak = replay.run(arena="counting")["peak_bytes"]
    found = []
    for percent in BUDGETS:
        run = replay.run(arena="counting", budget=peak * percent // 100, allocations=True)
        if run["result"] != "ok":
            continue
        events = [e for e in run["allocations"] if e[0] != "refuse"]
        live = most = 0
        for kind, _, size in events:
            live += size if kind in ("allocate", "charge") else -size
            most = max(most, live)
        found.append((events, most))
    return found


def _at_failure(
    events: list[tuple[str, int, int]], allocator: Allocator, capacity: int
) -> float | None:
    live = 0
    for kind, number, size in events:
        if kind == "allocate":
            if not allocator.allocate(number, size):
                return min((live + size) / capacity, 1.0)
            live += size
        elif kind == "free":
            allocator.free(number)
            live -= size
    return None


def as_markdown(rows: list[dict[str, Any]]) -> str:
    lines = ["# Fragmentation", "", "How: benchmarks/fragmentation.py.", ""]
    lines += _table(
        rows,
        "smallest",
        "Smallest feasible budget, as a share of the counted peak (over that of counted memory)",
        lambda r: f"{r['budget_fraction']:.3f} ({r['over_counted']:.3f})",
    )
    lines += _table(
        [row for row in rows if row.get("at") == "own"],
        "machine",
        "The virtual machine at its own smallest budget of each",
        _outcome,
    )
    lines += _table(
        [row for row in rows if row.get("at") == "counted"],
        "machine",
        "The virtual machine at the smallest budget of memory counted to the byte",
        _outcome,
    )
    lines += _table(
        [row for row in rows if row.get("at") == "rounded"],
        "machine",
        "The virtual machine at the smallest budget of memory counted as the paged arena rounds",
        _outcome,
    )
    lines += _table(
        rows,
        "utilisation",
        "Share of the capacity asked for at the first refusal: least (median)",
        lambda r: f"{r['least']:.3f} ({r['median']:.3f})",
    )
    return "\n".join(lines)


def _outcome(row: dict[str, Any]) -> str:
    if row["result"] != "ok":
        return row["result"]
    held = f"{row['peak_bytes'] / row['budget_bytes']:.3f} of the budget"
    return held + ("" if row["bitwise"] else ", results differ")


def _table(rows: list[dict[str, Any]], table: str, title: str, cell: Any) -> list[str]:
    rows = [row for row in rows if row["table"] == table]
    if not rows:
        return []
    methods = list(dict.fromkeys(row["method"] for row in rows))
    lines = [f"## {title}", "", "| trace | " + " | ".join(methods) + " |"]
    lines.append("|---|" + "--:|" * len(methods))
    for trace in dict.fromkeys(row["trace"] for row in rows):
        found = {row["method"]: row for row in rows if row["trace"] == trace}
        lines.append(f"| {trace} | " + " | ".join(cell(found[m]) for m in methods) + " |")
    return [*lines, ""]


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("traces", nargs="+", type=Path, metavar="TRACE")
    parser.add_argument("-o", "--output", default="benchmarks/results/fragmentation")
    parser.add_argument("--sizes", metavar="FILE", help="write block sizes, for arena_stress")
    return parser.parse_args()


if __name__ == "__main__":
    main()
