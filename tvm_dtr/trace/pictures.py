"""Pictures of a traced step that are readable in grey: memory by role, and lives of storages."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

from .analysis import Analysis
from .header import FREE, ROLES
from .steps import Step, Storage

MEBIBYTE = 2**20
# Told apart by brightness and hatching, not by hue.
_FILLS: tuple[dict[str, Any], ...] = (
    {"facecolor": "0.25", "hatch": ""},
    {"facecolor": "0.45", "hatch": "///"},
    {"facecolor": "0.62", "hatch": ""},
    {"facecolor": "0.82", "hatch": ""},
    {"facecolor": "0.92", "hatch": "\\\\\\"},
    {"facecolor": "0.70", "hatch": "xxx"},
    {"facecolor": "1.00", "hatch": "..."},
)
_MOST_POINTS = 4000  # of the stacked curves: more than a picture has columns
_MOST_ROWS = 60


def memory_by_role(step: Step) -> tuple[np.ndarray, np.ndarray]:
    """(n,) milliseconds since the step's start and (n, roles) bytes from then on."""
    ms = np.array([(ns - step.start) / 1e6 for ns, _ in step.memory])
    return ms, np.array([sizes for _, sizes in step.memory], np.int64)


def thin(ms: np.ndarray, sizes: np.ndarray, most: int) -> tuple[np.ndarray, np.ndarray]:
    """At most about ``most`` of the points: the fullest of each stretch, so that peaks stay."""
    if len(ms) <= most:
        return ms, sizes
    in_use = sizes.sum(axis=1) * 2 - sizes[:, ROLES.index(FREE)]
    edges = np.linspace(0, len(ms), most + 1).astype(int)
    kept = [a + int(in_use[a:b].argmax()) for a, b in pairwise(edges) if b > a]
    chosen = sorted({0, *kept, len(ms) - 1})
    return ms[chosen], sizes[chosen]


def memory_figure(analysis: Analysis, step: Step) -> Any:
    """Memory over the step, stacked by role, with the budget and bands where ops ran again."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.0, 4.8), layout="constrained")
    axes = figure.add_subplot()
    ms, sizes = thin(*memory_by_role(step), _MOST_POINTS)
    below = np.zeros(len(ms))
    for index, role in enumerate(ROLES):
        if not sizes[:, index].any():
            continue
        top = below + sizes[:, index] / MEBIBYTE
        axes.fill_between(
            ms, below, top, step="post", label=role, linewidth=0.3, edgecolor="0.1", **_FILLS[index]
        )
        below = top
    _draw_again(axes, step)
    _draw_budget(axes, step)
    axes.set_xlim(0, (step.end - step.start) / 1e6)
    axes.set_ylim(0, max(below.max(), (step.budget_bytes or 0) / MEBIBYTE) * 1.08)
    _finish(axes, "memory (MiB)", f"{analysis.name}, step {step.number}: memory by role")
    figure.legend(loc="outside lower center", ncols=5, frameon=False, fontsize="small")
    return figure


def lives_figure(analysis: Analysis, step: Step) -> Any:
    """One row a storage, the largest on top; bars while it is in memory, a cross where it was
    evicted for want of memory, a diamond where an update has written over it."""
    from matplotlib.figure import Figure

    rows = largest_storages(analysis, step, _MOST_ROWS)
    figure = Figure(figsize=(9.0, 1.4 + 0.17 * max(len(rows), 4)), layout="constrained")
    axes = figure.add_subplot()
    for row, storage in enumerate(rows):
        spans = [
            (
                (max(a, step.start) - step.start) / 1e6,
                (min(b or step.end, step.end) - max(a, step.start)) / 1e6,
            )
            for a, b, _ in storage.spans
            if a < step.end and (b is None or b > step.start)
        ]
        axes.broken_barh(
            spans,
            (row - 0.38, 0.76),
            **_FILLS[ROLES.index(storage.role)],
            edgecolor="0.1",
            linewidth=0.3,
        )
    numbers = {storage.number: row for row, storage in enumerate(rows)}
    _draw_marks(axes, step, step.evicted, numbers, "x", "evicted")
    _draw_marks(axes, step, step.overwritten, numbers, "d", "written in place")
    labels = [f"{s.label()}  {s.bytes / MEBIBYTE:.2f} MiB" for s in rows]
    axes.set_yticks(range(len(rows)), labels, fontsize=6)
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.set_xlim(0, (step.end - step.start) / 1e6)
    _finish(axes, "", f"{analysis.name}, step {step.number}: when storages were in memory")
    return figure


def _draw_marks(
    axes: Any,
    step: Step,
    moments: list[tuple[int, int]],
    rows: dict[int, int],
    mark: str,
    label: str,
) -> None:
    points = [((ns - step.start) / 1e6, rows[index]) for ns, index in moments if index in rows]
    if points:
        at, row = zip(*points, strict=True)
        axes.plot(at, row, mark, color="0.0", markerfacecolor="1.0", markersize=4, label=label)
        axes.legend(loc="lower right", frameon=True, fontsize="small")


def largest_storages(analysis: Analysis, step: Step, most: int) -> list[Storage]:
    """Those in memory at some time of the step, the largest first."""
    there = [s for s in analysis.storages if s.resident_ns(step.start, step.end) > 0]
    return sorted(there, key=lambda s: (-s.bytes, s.number))[:most]


def _draw_again(axes: Any, step: Step) -> None:
    """Bands along the upper edge; one collection, for a step can repeat thousands of ops."""
    spans = [((run.start - step.start) / 1e6, run.duration / 1e6) for run in step.runs if run.again]
    if spans:
        upper_edge = {"transform": axes.get_xaxis_transform()}
        axes.broken_barh(
            spans, (0.965, 0.035), color="0.0", lw=0, label="recomputation", **upper_edge
        )


def _draw_budget(axes: Any, step: Step) -> None:
    moments = [(ns, budget) for ns, budget in step.budgets if budget is not None]
    if not moments:
        return
    ms = [(ns - step.start) / 1e6 for ns, _ in moments] + [(step.end - step.start) / 1e6]
    heights = [budget / MEBIBYTE for _, budget in moments]
    label = f"budget ({heights[-1]:.1f} MiB)"
    axes.step(ms, [*heights, heights[-1]], "--", where="post", color="0.0", lw=1.2, label=label)


def _finish(axes: Any, label: str, title: str) -> None:
    axes.set_xlabel("time in the step (ms)")
    axes.set_ylabel(label)
    axes.set_title(title, fontsize="medium")
    axes.spines[["top", "right"]].set_visible(False)
