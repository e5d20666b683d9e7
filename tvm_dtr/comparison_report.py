"""Rows of tvm_dtr.comparison as Markdown, CSV and a picture."""

from __future__ import annotations

import csv
import io
from typing import Any

Rows = list[dict[str, Any]]
_MARKERS = "os^Dv<>PX*hd"


def markdown(rows: Rows) -> str:
    """A table of measured slowdowns, a line a method and a column a budget, then all figures."""
    parts = ["# DTR and static planners\n"]
    for trace in dict.fromkeys(row["trace"] for row in rows):
        mine = [row for row in rows if row["trace"] == trace]
        budgets = sorted({(r["budget_fraction"], r["budget_bytes"]) for r in mine}, reverse=True)
        cells = {(row["method"], row["budget_bytes"]): _cell(row) for row in mine}
        methods = dict.fromkeys(row["method"] for row in mine)
        lines = [["measured slowdown", *(f"{share:.4g}" for share, _ in budgets)]]
        lines += [[m, *(cells.get((m, size), "") for _, size in budgets)] for m in methods]
        parts += [f"## {trace}\n", _table(lines), _table(_details(mine))]
    return "\n".join(parts)


def _cell(row: dict[str, Any]) -> str:
    return f"{row['slowdown']:.3f}" if row["result"] == "ok" else row["result"]


def _details(rows: Rows) -> list[list[str]]:
    lines = [
        ["method", "budget", "predicted slowdown", "measured", "predicted peak", "measured peak",
         "planning s", "recomputed ops", "bitwise"]
    ]  # fmt: skip
    for row in rows:
        if row["result"] != "ok":
            continue
        lines.append([
            row["method"],
            f"{row['budget_fraction']:.4g}",
            "-" if row["predicted_slowdown"] is None else f"{row['predicted_slowdown']:.4f}",
            f"{row['slowdown']:.4f}",
            str(row["predicted_peak_bytes"]),
            str(row["peak_bytes"]),
            f"{row['planning_seconds']:.2f}",
            str(row["recomputed_ops"]),
            "yes" if row["bitwise"] else "NO",
        ])  # fmt: skip
    return lines


def _table(lines: list[list[str]]) -> str:
    rule = ["---", *("---:" for _ in lines[0][1:])]
    return "\n".join("| " + " | ".join(line) + " |" for line in [lines[0], rule, *lines[1:]]) + "\n"


def comma_separated(rows: Rows) -> str:
    """Every row with all fields; what is None is left empty."""
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]) if rows else ["trace"], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def comparison_figure(rows: Rows) -> Any:
    """A matplotlib Figure: measured slowdown against the budget, and planning time on a
    logarithmic scale; a line a method. Methods without planning have no line on the right."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 4.5), layout="constrained")
    slow, planning = figure.subplots(1, 2)
    for index, method in enumerate(dict.fromkeys(row["method"] for row in rows)):
        mine = sorted(
            (r for r in rows if r["method"] == method and r["result"] == "ok"),
            key=lambda row: row["budget_fraction"],
        )
        style: dict[str, Any] = {"marker": _MARKERS[index % len(_MARKERS)], "markersize": 4}
        shares = [row["budget_fraction"] for row in mine]
        slow.plot(shares, [row["slowdown"] for row in mine], label=method, **style)
        if any(row["planning_seconds"] > 0 for row in mine):
            seconds = [max(row["planning_seconds"], 1e-4) for row in mine]
            planning.plot(shares, seconds, color=slow.lines[-1].get_color(), **style)
    slow.set_ylabel("measured slowdown")
    planning.set_ylabel("planning time (s)")
    planning.set_yscale("log")
    for axes in (slow, planning):
        axes.set_xlabel("budget (share of the unbudgeted peak)")
        axes.spines[["top", "right"]].set_visible(False)
    figure.suptitle(", ".join(dict.fromkeys(row["trace"] for row in rows)))
    figure.legend(*slow.get_legend_handles_labels(), loc="outside lower center", ncols=6)
    return figure
