"""``tvm-dtr freeze``: a program for TVM's own VM that stays within a memory budget."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from tvm_dtr.budget import format_bytes, parse_budget
from tvm_dtr.cli import arguments as args
from tvm_dtr.cli.files import check_outputs, write_rows
from tvm_dtr.cli.plan import DEFAULT_TIME_LIMIT
from tvm_dtr.cli.report import progress
from tvm_dtr.cli.simulate import limit
from tvm_dtr.errors import UsageError


def add_command(commands: Any, everywhere: argparse.ArgumentParser) -> None:
    parser = commands.add_parser(
        "freeze",
        parents=[everywhere],
        help="plan recomputation and write it into a program for TVM's own VM",
        description="Plan recomputation within a budget and write a program with it built in.",
    )
    parser.add_argument("program", metavar="PROGRAM", help="a program (.tdtr)")
    parser.add_argument(
        "--memory-budget",
        required=True,
        metavar="SIZE",
        help="512MiB or 40%% (of the peak without a budget)",
    )
    parser.add_argument(
        "--method", default="anneal", metavar="NAME", help="the planner (default anneal)"
    )
    parser.add_argument(
        "--time-limit",
        type=limit,
        default=DEFAULT_TIME_LIMIT,
        metavar="SECONDS",
        help=f"of a planner that searches (default {DEFAULT_TIME_LIMIT:g})",
    )
    parser.add_argument("--seed", type=args.seed, default=0, metavar="N", help="(default 0)")
    parser.add_argument(
        "-o", "--output", required=True, metavar="FILE", help="the program to write"
    )
    args.add_require_sha256(parser)
    parser.set_defaults(command=freeze_program)


def freeze_program(arguments: argparse.Namespace) -> int:
    from tvm_dtr.passes.graph import check_plannable, graph_of_program
    from tvm_dtr.passes.planners import check_methods, plan_row
    from tvm_dtr.passes.rewrite import planned_program

    args.check_input(arguments.program)
    check_outputs([arguments.output, arguments.json], inputs=[arguments.program])
    budget = parse_budget(arguments.memory_budget)
    if budget.unlimited:
        raise UsageError("freezing needs a budget: use bytes, 512MiB or 40%, not none")
    check_methods([arguments.method])
    program = args.load_program(arguments)
    check_plannable(program, Path(arguments.program).stem)
    program = program.out_of_place()  # TVM's own VM has no updates in place
    graph = graph_of_program(program, Path(arguments.program).stem)
    size = budget.resolve(program.unbudgeted_peak_bytes) or 0
    with progress(f"planning {graph.name}"):
        row, schedule = plan_row(
            graph, arguments.method, size, arguments.time_limit, arguments.seed, raising=True
        )
    assert schedule is not None
    planned_program(program, schedule).save(arguments.output)
    write_rows(arguments.json, [row])
    print(
        f"{arguments.output}: peak {format_bytes(schedule.peak_bytes)} of "
        f"{format_bytes(program.unbudgeted_peak_bytes)}, predicted slowdown "
        f"{schedule.slowdown:.3f}, {schedule.recomputed_ops} ops computed again"
    )
    return 0
