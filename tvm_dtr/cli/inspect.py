"""``tvm-dtr inspect``: what a program file holds."""

from __future__ import annotations

import argparse
from typing import Any

from tvm_dtr.cli import arguments as args
from tvm_dtr.cli.files import check_outputs, write_rows
from tvm_dtr.cli.report import mebibytes, print_table

KERNELS_SHOWN = 15
TENSORS_SHOWN = 20


def add_command(commands: Any, everywhere: argparse.ArgumentParser) -> None:
    parser = commands.add_parser(
        "inspect",
        parents=[everywhere],
        help="show what a program file holds",
        description="Show what a program file holds, without running its code.",
    )
    parser.add_argument("program", metavar="PROGRAM", help="a program that 'build' wrote")
    parser.add_argument("--all", action="store_true", help="all tensors and kernels, not the first")
    args.add_require_sha256(parser)
    parser.set_defaults(command=inspect)


def inspect(arguments: argparse.Namespace) -> int:
    from tvm_dtr.inspection import inspect_program

    check_outputs([arguments.json], inputs=[arguments.program])
    row = inspect_program(arguments.program, arguments.require_sha256)
    write_rows(arguments.json, [row])
    limit = None if arguments.all else KERNELS_SHOWN
    print_table(row["file"], ["what", "value"], _summary(row))
    _print_tensors(row, None if arguments.all else TENSORS_SHOWN)
    _print_kernels(row["kernels"], row["step_cost_ns"], limit)
    return 0


def _summary(row: dict[str, Any]) -> list[list[str]]:
    sizes = ", ".join(f"{name} {mebibytes(size)}" for name, size in row["member_bytes"].items())
    trained = [tensor for tensor in row["state"] if tensor["trained"]]
    return [
        ["file", f"{mebibytes(row['file_bytes'])} MiB ({sizes})"],
        ["written by", f"tvm-dtr {row['package_version']}, format {row['format_version']}"],
        ["TVM", row["tvm_version"]],
        ["target", f"{row['target']} on {row['machine']}, {row['threads']} threads"],
        ["runs here", "yes" if row["runs_here"] else f"no: {row['reason']}"],
        ["trained", f"{len(trained)} tensors, {_total(trained)} MiB"],
        ["state", f"{len(row['state'])} tensors, {_total(row['state'])} MiB"],
        ["ops", f"{row['ops']} of {len(row['kernels'])} distinct kernels"],
        ["step", f"{row['step_cost_ns'] / 1e6:.1f} ms, {row['step_flops'] / 1e9:.2f} GFLOP"],
        ["workspace", f"{mebibytes(row['workspace_bytes'])} MiB at most"],
        ["peak without a budget", f"{mebibytes(row['unbudgeted_peak_bytes'])} MiB"],
        ["smallest budget", f"{mebibytes(row['smallest_budget_bytes'])} MiB (dtr-eq)"],
    ]


def _total(tensors: list[dict[str, Any]]) -> str:
    return mebibytes(sum(tensor["bytes"] for tensor in tensors))


def _print_tensors(row: dict[str, Any], limit: int | None) -> None:
    cells = [["input", *_tensor_cells(t)] for t in row["inputs"]]
    cells += [["output", *_tensor_cells(t)] for t in row["results"] if t["kind"] == "output"]
    cells += [["trained" if t["trained"] else "state", *_tensor_cells(t)] for t in row["state"]]
    shown = cells if limit is None else cells[:limit]
    if len(shown) < len(cells):
        shown.append([f"{len(cells) - len(shown)} more: --all", "", "", ""])
    print_table("Tensors", ["role", "name", "type", "MiB"], shown)


def _tensor_cells(tensor: dict[str, Any]) -> list[str]:
    shape = " x ".join(map(str, tensor["shape"])) or "scalar"
    return [tensor["name"], f"{shape} {tensor['dtype']}", f"{tensor['bytes'] / 2**20:.3f}"]


def _print_kernels(kernels: list[dict[str, Any]], total: float, limit: int | None) -> None:
    shown = kernels if limit is None else kernels[:limit]
    rows = [
        [
            kernel["name"],
            str(kernel["calls"]),
            f"{kernel['cost_ns'] / 1e3:.1f}",
            f"{100 * kernel['cost_ns'] * kernel['calls'] / max(total, 1):.1f} %",
            f"{kernel['flops'] / max(kernel['cost_ns'], 1e-9):.1f}",
            mebibytes(kernel["operand_bytes"]),
            mebibytes(kernel["workspace_bytes"]),
        ]
        for kernel in shown
    ]
    if len(shown) < len(kernels):
        rows.append([f"{len(kernels) - len(shown)} more: --all", *[""] * 6])
    columns = ["kernel", "calls", "us", "share", "GFLOP/s", "MiB", "workspace MiB"]
    print_table("Kernels, by their share of a step", columns, rows)
