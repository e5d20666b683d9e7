"""The table of ``tvm-dtr run --profile``."""

from __future__ import annotations

from typing import Any

from tvm_dtr.cli.report import print_table

KERNELS_SHOWN = 25
SOURCES_SHOWN = 2


def print_profile(rows: list[dict[str, Any]], label: str, steps: int) -> None:
    """The dearest kernels, times per step; --json has all."""
    columns = ["kernel", "ms", "share", "calls", "again", "GFLOP/s", "GB/s", "nodes"]
    title = f"Kernels of the {label} step, mean of {steps}"
    shown = [_cells(row, steps) for row in rows[:KERNELS_SHOWN]]
    rest = rows[KERNELS_SHOWN:]
    if rest:
        shown.append(_rest(rest, steps))
    print_table(title, columns, shown)


def _cells(row: dict[str, Any], steps: int) -> list[str]:
    return [
        row["kernel"],
        f"{_seconds(row) / steps * 1e3:.3f}",
        f"{100 * row['share']:.1f} %",
        f"{row['calls'] / steps:.0f}",
        f"{row['rematerializations'] / steps:.0f}",
        f"{row['gflops']:.1f}",
        f"{row['gbytes']:.1f}",
        _nodes(row["sources"]),
    ]


def _seconds(row: dict[str, Any]) -> float:
    return row["seconds"] + row["remat_seconds"]


def _nodes(sources: list[str]) -> str:
    text = ", ".join(sources[:SOURCES_SHOWN])
    more = len(sources) - SOURCES_SHOWN
    return f"{text} and {more} more" if more > 0 else text


def _rest(rows: list[dict[str, Any]], steps: int) -> list[str]:
    return [
        f"{len(rows)} more",
        f"{sum(map(_seconds, rows)) / steps * 1e3:.3f}",
        f"{100 * sum(row['share'] for row in rows):.1f} %",
        f"{sum(row['calls'] for row in rows) / steps:.0f}",
        f"{sum(row['rematerializations'] for row in rows) / steps:.0f}",
        "-",
        "-",
        "",
    ]
