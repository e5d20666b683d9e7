"""Slowdown against the budget, as figure 2 of the DTR paper, readable in grey."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from .tables import Rows, by_trace
from .trace import Trace

COLUMNS = 3
# Told apart by marker and dashes first; brightness helps.
_DASHES: tuple[Any, ...] = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)), (0, (1, 3)))
_MARKERS = ("o", "s", "^", "D", "v", "P", "<", ">")
_GREYS = ("0.0", "0.25", "0.4", "0.5")
_FAILURE_MARKERS = {"oom": "x", "thrash": "+"}


def slowdown_figure(rows: Rows, traces: Sequence[Trace]) -> Any:
    """A matplotlib Figure: one panel a trace, one line a policy, over the share of the peak.

    A line ends in a cross at the first budget that failed: ``x`` out of memory, ``+`` thrashing.
    Dark shading is what is pinned throughout, light shading the largest op on top of it: no
    policy works there.

    Raises:
        ValueError: no rows, or rows of a trace that is not among ``traces``.
    """
    from matplotlib.figure import Figure

    groups = by_trace(rows)
    shares = {trace.name: trace for trace in traces}
    if not groups or not groups.keys() <= shares.keys():
        raise ValueError("expected rows of the given traces")
    columns = min(COLUMNS, len(groups))
    lines = math.ceil(len(groups) / columns)
    figure = Figure(figsize=(4.2 * columns, 3.2 * lines + 0.6), layout="constrained")
    panels = list(figure.subplots(lines, columns, squeeze=False).flat)
    methods = list(dict.fromkeys(row["method"] for row in rows))
    for panel, (name, group) in zip(panels, groups.items(), strict=False):
        _draw_panel(panel, group, shares[name], methods)
    for panel in panels[len(groups) :]:
        panel.remove()
    handles, labels = figure.axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=8, frameon=False)
    return figure


def _draw_panel(axes: Any, rows: Rows, trace: Trace, methods: list[str]) -> None:
    constants = trace.constant_fraction
    floor = constants + trace.largest_op_fraction
    axes.axvspan(0, constants, color="0.75", linewidth=0, label="constants")
    axes.axvspan(constants, floor, color="0.9", linewidth=0, label="largest op")
    for index, method in enumerate(methods):
        mine = [row for row in rows if row["method"] == method]
        _draw_line(axes, sorted(mine, key=lambda row: -row["budget_bytes"]), index, method)
    axes.set_xlim(0, 1)
    axes.set_ylim(bottom=1)
    axes.set_title(trace.name, fontsize="medium")
    axes.set_xlabel("budget (share of the unbudgeted peak)")
    axes.set_ylabel("slowdown")
    axes.spines[["top", "right"]].set_visible(False)


def _draw_line(axes: Any, rows: Rows, index: int, label: str) -> None:
    style = {
        "color": _GREYS[index % len(_GREYS)],
        "linestyle": _DASHES[index % len(_DASHES)],
        "marker": _MARKERS[index % len(_MARKERS)],
    }
    x, y = [1.0], [1.0]
    failure = None
    for row in rows:
        if row["result"] != "ok":
            failure = failure or row
            continue
        x.append(row["budget_fraction"])
        # A gap where a larger budget failed: success need not be monotone in the budget.
        y.append(row["slowdown"] if failure is None else math.nan)
        if failure is not None:
            x.append(row["budget_fraction"])
            y.append(row["slowdown"])
    axes.plot(x, y, label=label, linewidth=1.2, markersize=3.5, **style)
    if failure is not None:
        last = max(i for i, at in enumerate(x) if at > failure["budget_fraction"] or i == 0)
        _mark_failure(axes, failure, (x[last], y[last]), style["color"])


def _mark_failure(axes: Any, row: dict[str, Any], last: tuple[float, float], color: str) -> None:
    """A cross at the height of the last budget that worked, joined to it by a hairline."""
    at = row["budget_fraction"]
    axes.plot([at, last[0]], [last[1]] * 2, color=color, linewidth=0.5, label="_joint")
    axes.plot(
        [at],
        [last[1]],
        marker=_FAILURE_MARKERS.get(row["result"], "x"),
        markersize=7,
        markeredgewidth=1.6,
        color=color,
        linestyle="none",
        label="_failed",
        gid=f"failed-{row['method']}",
    )
