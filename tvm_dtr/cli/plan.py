"""``tvm-dtr plan``: static planners on a graph, under budgets, without running a kernel."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from tvm_dtr.cli import arguments as args
from tvm_dtr.cli.files import check_outputs, replacing, write_rows
from tvm_dtr.cli.report import print_table, progress
from tvm_dtr.cli.simulate import limit, names, output_folder

DEFAULT_TIME_LIMIT = 20.0


def add_command(commands: Any, everywhere: argparse.ArgumentParser) -> None:
    parser = commands.add_parser(
        "plan",
        parents=[everywhere],
        help="plan recomputation ahead with static planners, for a graph",
        description="Plan which ops to compute again under memory budgets, with static planners.",
    )
    parser.add_argument(
        "graph", metavar="GRAPH", help="a program (.tdtr), an OpGraph or a networkx graph (.json)"
    )
    parser.add_argument("--methods", type=names, metavar="A,B", help=methods_help())
    parser.add_argument(
        "--budgets",
        type=names,
        required=True,
        metavar="A,B",
        help="80%%,50%% (of the peak of the graph's own order) or 512MiB",
    )
    parser.add_argument(
        "--time-limit",
        type=limit,
        default=DEFAULT_TIME_LIMIT,
        metavar="SECONDS",
        help=f"for each plan of a planner that searches (default {DEFAULT_TIME_LIMIT:g})",
    )
    parser.add_argument("--seed", type=args.seed, default=0, metavar="N", help="(default 0)")
    parser.add_argument("--out", metavar="DIR", help="write each schedule to DIR, as JSON")
    args.add_require_sha256(parser)
    parser.set_defaults(command=run_plan)


def methods_help() -> str:
    return (
        "planners: chen-sqrt, chen-greedy, revolve, knapsack, dtr, anneal; checkmate, "
        "checkmate-lp and intervals need tvm-dtr[solvers] (default: all without a solver)"
    )


def run_plan(arguments: argparse.Namespace) -> int:
    from tvm_dtr.passes import DEFAULT_METHODS, load_graph, plan_rows

    check_outputs([arguments.json], inputs=[arguments.graph])
    folder = output_folder(arguments.out)
    graph = load_graph(arguments.graph, arguments.require_sha256)

    def keep(schedule: Any, fraction: float) -> None:
        if folder is not None:
            path = folder / f"{graph.name}-{schedule.method}-{fraction:g}.json"
            with replacing(str(path)) as draft:
                draft.write_text(schedule.to_json() + "\n", encoding="utf-8")

    with progress(f"planning {Path(arguments.graph).name}") as report:
        rows = plan_rows(
            graph,
            arguments.methods or DEFAULT_METHODS,
            arguments.budgets,
            time_limit=arguments.time_limit,
            seed=arguments.seed,
            progress=report,
            keep=keep,
        )
    write_rows(arguments.json, rows)
    columns = ["planner", "budget", "result", "slowdown", "peak", "recomputed ops", "planning s"]
    print_table(f"{graph.name}: predicted", columns, [_cells(row) for row in rows])
    for row in rows:
        if row["error"] is not None:
            print(row["error"])
    return 0 if any(row["result"] == "ok" for row in rows) else 1


def _cells(row: dict[str, Any]) -> list[str]:
    share = f"{row['budget_fraction']:.4g}"
    seconds = f"{row['planning_seconds']:.2f}"
    if row["result"] != "ok":
        return [row["method"], share, row["result"], "-", "-", "-", seconds]
    peak = row["peak_bytes"] / max(row["unbudgeted_peak_bytes"], 1)
    cells = [f"{row['slowdown']:.4f}", f"{peak:.4f}", str(row["recomputed_ops"])]
    return [row["method"], share, row["result"], *cells, seconds]
