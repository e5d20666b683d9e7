"""Memory over time as a picture that is readable in grey."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

MEBIBYTE = 2**20
# Told apart by brightness, width and dashes, not by hue.
STYLES = (
    {"color": "0.55", "linestyle": "-", "linewidth": 1.0, "fill": "0.88"},
    {"color": "0.0", "linestyle": "-", "linewidth": 1.2, "fill": None},
    {"color": "0.35", "linestyle": "-.", "linewidth": 1.2, "fill": None},
)


@dataclass(frozen=True)
class MemoryTrace:
    """Samples of one step: ``seconds`` since its start, ``active_bytes`` from then on."""

    label: str
    seconds: np.ndarray
    active_bytes: np.ndarray


def memory_figure(traces: Sequence[MemoryTrace], budget_bytes: int | None, title: str = "") -> Any:
    """A matplotlib Figure of the traces as steps, the budget as a labelled dashed line.

    Args:
      traces: one to three, the first one drawn as a filled background.
      budget_bytes: the height of the line, or None for no line.

    Raises:
      ValueError: no trace or more than three, or one whose arrays differ in length or are empty.
    """
    from matplotlib.figure import Figure

    if not 1 <= len(traces) <= len(STYLES):
        raise ValueError(f"expected 1 to {len(STYLES)} traces, got {len(traces)}")
    figure = Figure(figsize=(8.0, 4.0), layout="constrained")
    axes = figure.add_subplot()
    for trace, style in zip(traces, STYLES, strict=False):
        _draw(axes, trace, style)
    if budget_bytes is not None:
        _draw_budget(axes, budget_bytes)
    axes.set_xlabel("time in the step (ms)")
    axes.set_ylabel("memory (MiB)")
    axes.set_title(title, fontsize="medium")
    axes.set_xlim(left=0)
    axes.set_ylim(0, axes.get_ylim()[1] * 1.05)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(loc="upper right", frameon=False)
    return figure


def save_figure(figure: Any, path: str | os.PathLike[str]) -> None:
    """Writes PNG or SVG by the path's suffix; equal figures give equal files.

    Raises:
      ValueError: another suffix.
    """
    kind = picture_format(path)
    metadata = {"Date": None} if kind == "svg" else {"Software": None}
    import matplotlib

    with matplotlib.rc_context({"svg.hashsalt": "tvm-dtr", "svg.fonttype": "none"}):
        figure.savefig(path, format=kind, dpi=150, metadata=metadata)


def picture_format(path: str | os.PathLike[str]) -> str:
    """ "png" or "svg"; ValueError for another suffix."""
    kind = os.path.splitext(os.fspath(path))[1].lstrip(".").lower()
    if kind not in ("png", "svg"):
        raise ValueError(f"picture '{os.fspath(path)}': the name must end in .png or .svg")
    return kind


def _draw(axes: Any, trace: MemoryTrace, style: dict[str, Any]) -> None:
    milliseconds, mebibytes = trace.seconds * 1e3, trace.active_bytes / MEBIBYTE
    if len(milliseconds) != len(mebibytes) or len(milliseconds) == 0:
        raise ValueError(
            f"trace '{trace.label}': {len(milliseconds)} times for {len(mebibytes)} sizes"
        )
    if style["fill"]:
        axes.fill_between(milliseconds, mebibytes, step="post", color=style["fill"], linewidth=0)
    axes.plot(
        milliseconds,
        mebibytes,
        drawstyle="steps-post",
        label=f"{trace.label} (peak {mebibytes.max():.1f} MiB)",
        color=style["color"],
        linestyle=style["linestyle"],
        linewidth=style["linewidth"],
    )


def _draw_budget(axes: Any, budget_bytes: int) -> None:
    height = budget_bytes / MEBIBYTE
    axes.axhline(
        height, color="0.0", linestyle="--", linewidth=1.0, label=f"the budget ({height:.1f} MiB)"
    )
