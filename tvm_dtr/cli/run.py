"""``tvm-dtr run``: trains a program on made-up data under a memory budget and measures it."""

from __future__ import annotations

import argparse
import contextlib
import gc
import json
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

from tvm_dtr.budget import parse_budget
from tvm_dtr.cli import arguments as args
from tvm_dtr.cli import measure, report_page
from tvm_dtr.cli.build import open_program
from tvm_dtr.cli.explain import print_decisions
from tvm_dtr.cli.files import check_outputs, replacing, write_rows
from tvm_dtr.cli.profile import print_profile
from tvm_dtr.cli.report import mebibytes, print_table
from tvm_dtr.cli.trace import open_trace
from tvm_dtr.errors import BudgetError, ThrashError, UsageError
from tvm_dtr.plot import memory_figure, picture_format, save_figure
from tvm_dtr.replay import arena_for

TRACE = "run.dtrace"


def add_command(commands: Any, everywhere: argparse.ArgumentParser) -> None:
    parser = commands.add_parser(
        "run",
        parents=[everywhere],
        help="train on made-up data under a memory budget, and measure",
        description="Train on made-up data under a memory budget and print what it took.",
    )
    parser.add_argument("program", metavar="PROGRAM_OR_ONNX", help="a program or an ONNX file")
    parser.add_argument(
        "--memory-budget",
        required=True,
        metavar="SIZE",
        help="512MiB, 40%% (of the peak without a budget), auto (the smallest whose predicted "
        "slowdown is at most 1.2) or none",
    )
    parser.add_argument(
        "--steps", type=args.positive, default=5, metavar="N", help="steps to run (default 5)"
    )
    parser.add_argument(
        "--seed", type=args.seed, default=0, metavar="N", help="of the made-up data (default 0)"
    )
    parser.add_argument(
        "--policy",
        default="auto",
        metavar="NAME",
        help="what to evict first: auto (default: the best by replay), dtr-eq, dtr, dtr-up, "
        "dtr-local, lru, size, msps, e-star, random or window; plan or plan:PLANNER (default "
        "anneal): a schedule planned while the first steps run",
    )
    args.add_arena(parser)
    parser.add_argument(
        "--baseline",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="first run the same steps without a budget, for the slowdown (default: do)",
    )
    parser.add_argument(
        "--verify",
        action="store_true",
        help="compare every tensor of every step with TVM's own VM, bit by bit",
    )
    parser.add_argument(
        "--plot",
        action="append",
        default=[],
        metavar="FILE",
        help="draw memory over a step to FILE (.png or .svg; may be given twice)",
    )
    parser.add_argument(
        "--trace",
        metavar="FILE",
        help="record every call, allocation and eviction of the budgeted run in FILE "
        "(.dtrace) as it happens; or write the step's ops, sizes and measured costs to FILE "
        "(.json)",
    )
    parser.add_argument(
        "--report",
        metavar="DIR",
        help=f"write the event trace of the budgeted run to DIR ({TRACE}), and what 'report' makes "
        f"of it: {report_page.PAGE}, {', '.join(report_page.PICTURES)}",
    )
    parser.add_argument(
        "--explain",
        action="store_true",
        help="print the last 20 evictions and repeated ops of the budgeted run, with their scores",
    )
    parser.add_argument(
        "--profile",
        action="store_true",
        help="print where the time went, by kernel, over all steps but the first",
    )
    parser.add_argument(
        "--length",
        type=args.length,
        action="append",
        metavar="NAME=FIRST..LAST",
        help="sizes of a dimension that changes from step to step, or values of a whole number "
        "that goes in: time=1..100 (default 1..32)",
    )
    args.add_build_options(parser)
    args.add_require_sha256(parser)
    parser.set_defaults(command=run_program)


def run_program(arguments: argparse.Namespace) -> int:
    _check(arguments)
    program = open_program(arguments)
    _check_graph_file(arguments, program)
    settings = measure.Settings(
        model=Path(arguments.program).stem,
        steps=arguments.steps,
        seed=arguments.seed,
        policy=arguments.policy,
        arena=arguments.arena,
        trace=bool(arguments.plot),
        profile=arguments.profile,
        lengths=dict(arguments.length) if arguments.length else None,
    )
    with contextlib.ExitStack() as stack:
        events = arguments.trace if is_event_file(arguments.trace) else None
        if arguments.report:
            files = _report_files(arguments)
            events = events or str(files[0])
            stack.callback(_report, str(events), files)
        if arguments.explain and events is None:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="tvm-dtr-"))
            events = str(Path(folder) / "events.dtrace")
        if arguments.explain:
            stack.callback(_explain, str(events))
        return _run(arguments, program, settings, events)


def _report_files(arguments: argparse.Namespace) -> list[Path]:
    names = (TRACE, report_page.PAGE, *report_page.PICTURES)
    return report_page.paths_in(arguments.report, names)


def _report(events: str, files: list[Path]) -> None:
    """Also of a run that the budget has stopped, if it came so far as to begin."""
    if not Path(events).exists():
        return
    from tvm_dtr.trace import Kind, read_events

    if not (read_events(events).kind == Kind.INVOKE).any():
        return
    analysis, step = open_trace(events, None)
    data = report_page.write_page(analysis, step, str(files[1]))
    report_page.draw(analysis, step, files[2:])
    print(f"wrote {files[1]} and pictures beside it: step {step.number}")
    for line in data["advice"]:
        print(line)


def _explain(events: str) -> None:
    if Path(events).exists():  # else the run was refused before it began
        print_decisions(events)


def _run(
    arguments: argparse.Namespace, program: Any, settings: measure.Settings, events: str | None
) -> int:
    runs: list[measure.Run] = []
    unlimited = parse_budget(arguments.memory_budget).unlimited
    budget = None if unlimited else arguments.memory_budget
    try:
        if budget is not None and arguments.baseline:
            runs.append(measure.run_steps(program, None, settings, verify=False))
            gc.collect()  # its memory goes before the next run asks for some
        settings = replace(settings, events=events, baseline=runs[-1].row if runs else None)
        runs.append(measure.run_steps(program, budget, settings, verify=arguments.verify))
    except (BudgetError, ThrashError) as error:
        rows = [run.row for run in runs]
        write_rows(arguments.json, [*rows, measure.failed_row(settings, budget, error)])
        _write_graph(arguments.trace, program, runs)
        raise
    measure.fill_slowdown(runs)
    write_rows(arguments.json, [run.row for run in runs])
    _write_graph(arguments.trace, program, runs)
    for path in arguments.plot:
        _draw(path, runs, settings.model)
    _print_runs(runs)
    for run in runs:
        if run.profile is not None:
            print_profile(run.profile, _label(run.row), run.row["profiled_steps"])
    return 0


def _check(arguments: argparse.Namespace) -> None:
    """Everything that can be refused before the long work."""
    args.check_input(arguments.program)
    outputs = [arguments.json, arguments.trace, *arguments.plot]
    outputs += map(str, _report_files(arguments)) if arguments.report else []
    check_outputs(outputs, inputs=[arguments.program])
    if arguments.trace is not None and Path(arguments.trace).suffix not in (".json", ".dtrace"):
        raise UsageError(
            f"trace '{arguments.trace}': the name must end in .dtrace (events) or .json (the graph)"
        )
    args.refuse_build_options(arguments)
    for path in arguments.plot:
        try:
            picture_format(path)
        except ValueError as error:
            raise UsageError(str(error)) from None
    parse_budget(arguments.memory_budget)
    arena_for(arguments.policy, arguments.arena)


def _check_graph_file(arguments: argparse.Namespace, program: Any) -> None:
    if arguments.trace is None or is_event_file(arguments.trace) or not program.control_flow:
        return
    raise UsageError(
        f"trace '{arguments.trace}': this program has {program.unplanned}, which no graph file "
        "holds; name a file that ends in .dtrace for its events"
    )


def is_event_file(name: str | None) -> bool:
    return name is not None and Path(name).suffix == ".dtrace"


def _write_graph(name: str | None, program: Any, runs: list[measure.Run]) -> None:
    """The step with the costs that it had without a budget, if it ran so, else within it."""
    if name is None or is_event_file(name):
        return
    from tvm_dtr.measured_costs import with_costs
    from tvm_dtr.replay import step_boundary

    inputs, next_state = step_boundary(program)
    graph = with_costs(program.graph, runs[0].costs) if runs else program.graph
    data = {**graph.to_dict(), "inputs": inputs, "next_state": next_state}
    data["overhead_ns"] = runs[0].overhead_ns if runs else 0.0
    with replacing(name) as draft:
        draft.write_text(json.dumps(data, separators=(",", ":")) + "\n", encoding="utf-8")


def _draw(path: str, runs: list[measure.Run], model: str) -> None:
    traces = [run.trace for run in runs if run.trace is not None]
    title = f"{model}: memory over one training step"
    figure = memory_figure(traces, runs[-1].row["budget_bytes"], title)
    with replacing(path) as draft:
        save_figure(figure, draft)


def _print_runs(runs: list[measure.Run]) -> None:
    columns = [
        "run",
        "budget MiB",
        "peak MiB",
        "step ms",
        "evictions",
        "rematerializations",
        "slowdown",
        "loss",
    ]
    title = f"{runs[0].row['model']}, {runs[0].row['steps']} steps"
    print_table(title, columns, [_cells(run.row) for run in runs])
    if runs[-1].row["policy_reason"] is not None:
        print(f"policy {runs[-1].row['policy_reason']}")
    if _disturbed(runs[-1].row["slowdown"]):
        print(
            "note: a budget makes no step that much faster; other work kept the processors busy "
            "during the run without a budget: run again for a slowdown to rely on"
        )
    if runs[-1].row["verified"]:
        count = runs[-1].row["verified_tensors"]
        print(f"verified: {count} tensors of every step are bitwise those of TVM's own VM")


def _disturbed(slowdown: float | None) -> bool:
    return slowdown is not None and slowdown < 0.9


def _label(row: dict[str, Any]) -> str:
    return "unbudgeted" if row["budget_bytes"] is None else "budgeted"


def _cells(row: dict[str, Any]) -> list[str]:
    slowdown, loss = row["slowdown"], row["loss"]
    return [
        _label(row),
        mebibytes(row["budget_bytes"]),
        mebibytes(row["peak_bytes"]),
        f"{row['step_seconds'] * 1e3:.1f}",
        str(row["evictions"]),
        str(row["rematerializations"]),
        "-" if slowdown is None else f"{slowdown:.3f}",
        "-" if loss is None else f"{loss:.6f}",
    ]
