"""``tvm-dtr compare``: DTR and static planners on one model, predicted and measured."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from tvm_dtr.cli import arguments as args
from tvm_dtr.cli.build import open_program
from tvm_dtr.cli.files import check_outputs, replacing, write_rows
from tvm_dtr.cli.plan import DEFAULT_TIME_LIMIT
from tvm_dtr.cli.report import print_table, progress
from tvm_dtr.cli.simulate import limit, names, output_folder


def add_command(commands: Any, everywhere: argparse.ArgumentParser) -> None:
    parser = commands.add_parser(
        "compare",
        parents=[everywhere],
        help="measure DTR against static planners on a model, under budgets",
        description="Run a model's steps by DTR and by static plans under budgets, in turn.",
    )
    parser.add_argument("program", metavar="PROGRAM_OR_ONNX", help="a program or an ONNX file")
    parser.add_argument(
        "--budgets",
        type=names,
        default=["90%", "70%", "50%", "40%", "30%"],
        metavar="A,B",
        help="90%%,50%% (of the peak without a budget) or 512MiB (default: 90%%,70%%,50%%,40%%,"
        "30%%)",
    )
    parser.add_argument(
        "--methods",
        type=names,
        metavar="A,B",
        help="planners as of plan, dtr-online (DTR while the step runs) and plan (run --policy "
        "plan) (default: all without a solver)",
    )
    parser.add_argument(
        "--rounds", type=args.positive, default=5, metavar="N", help="steps of each (default 5)"
    )
    parser.add_argument(
        "--time-limit",
        type=limit,
        default=DEFAULT_TIME_LIMIT,
        metavar="SECONDS",
        help=f"for each plan of a planner that searches (default {DEFAULT_TIME_LIMIT:g})",
    )
    parser.add_argument("--seed", type=args.seed, default=0, metavar="N", help="(default 0)")
    parser.add_argument("--out", metavar="DIR", help="write tables and the plot to DIR")
    args.add_build_options(parser)
    args.add_require_sha256(parser)
    parser.set_defaults(command=run_comparison)


def run_comparison(arguments: argparse.Namespace) -> int:
    args.check_input(arguments.program)
    check_outputs([arguments.json], inputs=[arguments.program])
    folder = output_folder(arguments.out)
    args.refuse_build_options(arguments)
    program = open_program(arguments)
    from tvm_dtr.comparison import compare

    with progress("comparing") as report:
        rows = compare(
            program,
            name=Path(arguments.program).stem,
            budgets=arguments.budgets,
            methods=arguments.methods,
            rounds=arguments.rounds,
            time_limit=arguments.time_limit,
            seed=arguments.seed,
            progress=report,
        )
    write_rows(arguments.json, rows)
    if folder is not None:
        _write_folder(folder, rows)
    columns = [
        "method",
        "budget",
        "result",
        "predicted",
        "measured",
        "recomputed ops",
        "planning s",
    ]
    print_table(f"{rows[0]['trace']}: slowdown", columns, [_cells(row) for row in rows])
    for reason in dict.fromkeys(row["error"] for row in rows if row["result"] == "unsupported"):
        print(reason)
    return 0


def _write_folder(folder: Path, rows: list[dict[str, Any]]) -> None:
    from tvm_dtr.comparison_report import comma_separated, comparison_figure, markdown
    from tvm_dtr.plot import save_figure

    for name, text in (("table.md", markdown(rows)), ("table.csv", comma_separated(rows))):
        with replacing(str(folder / name)) as draft:
            draft.write_text(text, encoding="utf-8")
    write_rows(str(folder / "table.json"), rows)
    with replacing(str(folder / "comparison.png")) as draft:
        save_figure(comparison_figure(rows), draft)


def _cells(row: dict[str, Any]) -> list[str]:
    share, seconds = f"{row['budget_fraction']:.4g}", f"{row['planning_seconds']:.2f}"
    if row["result"] != "ok":
        return [row["method"], share, row["result"], "-", "-", "-", seconds]
    figures = (row["predicted_slowdown"], row["slowdown"])
    slowdowns = ["-" if figure is None else f"{figure:.3f}" for figure in figures]
    return [row["method"], share, "ok", *slowdowns, str(row["recomputed_ops"]), seconds]
