"""``tvm-dtr advise``: which budget to choose for a model, from one step and a simulation."""

from __future__ import annotations

import argparse
import statistics
import tempfile
from pathlib import Path
from typing import Any

from tvm_dtr.budget import format_bytes, parse_budget
from tvm_dtr.cli import arguments as args
from tvm_dtr.cli.build import open_program
from tvm_dtr.cli.files import check_outputs, write_rows
from tvm_dtr.cli.report import mebibytes, print_table, progress
from tvm_dtr.errors import BudgetError, ThrashError, UsageError

_STEPS_WITHIN = 5


def add_command(commands: Any, everywhere: argparse.ArgumentParser) -> None:
    parser = commands.add_parser(
        "advise",
        parents=[everywhere],
        help="predict what budgets cost, and recommend one",
        description="Run a few steps, without a budget and within one, then predict what budgets "
        "cost.",
    )
    parser.add_argument("program", metavar="PROGRAM_OR_ONNX", help="a program or an ONNX file")
    parser.add_argument(
        "--memory", metavar="SIZE", help="also estimate the largest batch that runs in SIZE"
    )
    parser.add_argument(
        "--profile",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="take times from steps run now (default), or from when the program was built",
    )
    args.add_build_options(parser)
    args.add_require_sha256(parser)
    parser.set_defaults(command=advise)


def advise(arguments: argparse.Namespace) -> int:
    args.check_input(arguments.program)
    check_outputs([arguments.json], inputs=[arguments.program])
    memory = _memory(arguments.memory)
    args.refuse_build_options(arguments)
    program = open_program(arguments)
    from tvm_dtr.advise import largest_batch, slowdown_curve
    from tvm_dtr.report.data import advice

    peak = program.unbudgeted_peak_bytes
    with progress("running a few steps"):
        profile = profiled_step(program) if arguments.profile else ()
    with progress("simulating budgets"):
        curve = slowdown_curve(program.replay, peak, *profile)
    rows = [_row(point, Path(arguments.program).stem, curve) for point in curve.points]
    lines = advice(curve, None)
    if memory is not None:
        batch = program.inputs[0].shape[0]
        most, swift = largest_batch(program, memory), largest_batch(program, memory, 1.2)
        lines.append(
            f"In {format_bytes(memory)} the largest batch is about {most} rows (slowdown at most "
            f"1.20: {swift}); this program has {batch}."
        )
        for row in rows:
            row.update(memory_bytes=memory, largest_batch=most, largest_swift_batch=swift)
    write_rows(arguments.json, rows)
    _print(arguments.program, rows, lines)
    return 0


def _memory(text: str | None) -> int | None:
    if text is None:
        return None
    budget = parse_budget(text)
    if budget.bytes is None:
        raise UsageError(f"--memory '{text}' is no size: give bytes or a size (512MiB, 1.5GB)")
    return budget.bytes


def profiled_step(program: Any) -> tuple[list[float], float, Any, float]:
    """(seconds of each op of the graph, seconds of the step, the graph's replay with the costs of
    its kernels), of the second step of a run without a budget on made-up data; and the seconds that
    running an op again takes besides its kernel, of a short run within one."""
    import tvm_dtr
    from tvm_dtr.cli.synthetic import synthetic_inputs
    from tvm_dtr.measured_costs import with_costs
    from tvm_dtr.replay import replay_of, step_boundary
    from tvm_dtr.trace import read_events
    from tvm_dtr.trace.analysis import Analysis

    inputs = synthetic_inputs(program, 0)
    vm = tvm_dtr.VirtualMachine(program)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "step.dtrace"
        vm.step(**inputs)
        vm.start_trace(path)
        vm.step(**inputs)
        vm.stop_trace()
        step = Analysis(read_events(path)).step()
    order = [index for kind, index in program.graph.instructions if kind == "op"]
    seconds = [0.0] * len(program.graph.ops)
    for op, run in zip(order, step.runs, strict=True):
        seconds[op] = run.duration / 1e9
    measured = replay_of(with_costs(program.graph, vm.measured_costs()), *step_boundary(program))
    stats = vm.stats
    del vm  # its memory goes before the next machine asks for some
    beside = _beside_kernels(program, inputs, _besides(stats))
    return seconds, stats["step_seconds"], measured, beside


def _besides(stats: dict[str, Any]) -> float:
    own: float = stats["step_seconds"] - stats["compute_seconds"] - stats["remat_seconds"]
    return own


def _beside_kernels(program: Any, inputs: dict[str, Any], free: float) -> float:
    """Seconds for each op that runs again, by what a step takes besides kernels within a budget a
    quarter of the way from the smallest to the peak; ``free``: what it takes so without one."""
    import tvm_dtr
    from tvm_dtr.advise import smallest_budgets

    peak = program.unbudgeted_peak_bytes
    smallest = min(smallest_budgets(program.replay, peak))
    found = []
    try:
        vm = tvm_dtr.VirtualMachine(program, memory_budget=smallest + (peak - smallest) // 4)
        for _ in range(_STEPS_WITHIN):
            vm.step(**inputs)
            again = vm.stats["rematerializations"]
            found.append(max(0.0, _besides(vm.stats) - free) / again if again else 0.0)
    except (BudgetError, ThrashError):
        return 0.0
    return statistics.median(found[2:])  # by then the policy is chosen for good


def _row(point: Any, model: str, curve: Any) -> dict[str, Any]:
    knee = curve.knee
    return {
        "trace": model,
        "method": "auto",
        "policy": point.policy,
        "budget_bytes": point.budget_bytes,
        "budget_fraction": point.budget_bytes / curve.peak_bytes,
        "result": "infeasible" if point.slowdown is None else "ok",
        "slowdown": point.slowdown,
        "rematerializations": point.rematerializations,
        "knee": knee is not None and point.budget_bytes == knee.budget_bytes,
        "smallest_budget_bytes": curve.smallest_bytes,
        "unbudgeted_peak_bytes": curve.peak_bytes,
    }


def _print(name: str, rows: list[dict[str, Any]], lines: list[str]) -> None:
    print_table(
        f"{Path(name).stem}: predicted slowdown by budget",
        ["budget MiB", "of the peak", "slowdown", "policy", "ops run again", ""],
        [
            [
                mebibytes(row["budget_bytes"]),
                f"{100 * row['budget_fraction']:.0f} %",
                "-" if row["slowdown"] is None else f"{row['slowdown']:.3f}",
                row["policy"] or "none works",
                str(row["rematerializations"]),
                "knee" if row["knee"] else "",
            ]
            for row in rows
        ],
    )
    for line in lines:
        print(line)
