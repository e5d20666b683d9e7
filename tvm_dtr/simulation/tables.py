"""Simulated rows as tables: one for people, one for programs."""

from __future__ import annotations

import csv
import io
from typing import Any

FIELDS = (
    "trace",
    "method",
    "policy",
    "budget_fraction",
    "budget_bytes",
    "result",
    "slowdown",
    "peak_bytes",
    "planning_seconds",
    "evictions",
    "rematerializations",
)
Rows = list[dict[str, Any]]


def by_trace(rows: Rows) -> dict[str, Rows]:
    """The rows of each trace, traces in order of appearance."""
    groups: dict[str, Rows] = {}
    for row in rows:
        groups.setdefault(row["trace"], []).append(row)
    return groups


def pivot(rows: Rows) -> tuple[list[str], list[list[str]]]:
    """Columns and cells of one trace's rows: a line a method, a column a budget, largest first.

    A cell is the slowdown, or what went wrong.
    """
    budgets = sorted({(row["budget_fraction"], row["budget_bytes"]) for row in rows}, reverse=True)
    cells = {(row["method"], row["budget_bytes"]): _cell(row) for row in rows}
    methods = list(dict.fromkeys(row["method"] for row in rows))
    lines = [[m, *(cells.get((m, size), "") for _, size in budgets)] for m in methods]
    return ["policy", *(f"{fraction:.4g}" for fraction, _ in budgets)], lines


def markdown(rows: Rows) -> str:
    """A section for each trace; columns are budgets as shares of the unbudgeted peak."""
    parts = []
    for trace, group in by_trace(rows).items():
        columns, lines = pivot(group)
        rule = ["---", *("---:" for _ in columns[1:])]
        table = "\n".join("| " + " | ".join(line) + " |" for line in [columns, rule, *lines])
        parts.append(f"## {trace}\n\n{table}\n")
    return "# Slowdown by budget\n\n" + "\n".join(parts)


def comma_separated(rows: Rows) -> str:
    """Every row with all fields; what is None is left empty."""
    text = io.StringIO()
    writer = csv.DictWriter(text, FIELDS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def _cell(row: dict[str, Any]) -> str:
    return f"{row['slowdown']:.3f}" if row["result"] == "ok" else row["result"]
