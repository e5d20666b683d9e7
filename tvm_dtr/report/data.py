"""The figures of a report, from a trace and a simulation of its graph."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from ..advise import Curve, slowdown_curve
from ..budget import format_bytes
from ..trace.analysis import Analysis
from ..trace.header import ROLES
from ..trace.pictures import memory_by_role, thin
from ..trace.steps import Step, Storage

TOP = 12
_MOST_POINTS = 1500
# Why there is no curve, by whether the trace is of a program.
_NO_CURVE = (
    "The trace has no graph to simulate: its program is a bare executable.",
    "Control flow depends on the data here, so that what other budgets would cost cannot be "
    "simulated: run them.",
)


def report_data(analysis: Analysis, step: Step) -> dict[str, Any]:
    """Everything the page shows, ready for JSON; times in ms from the step's start, bytes."""
    ms, sizes = thin(*memory_by_role(step), _MOST_POINTS)
    curve = _curve(analysis)
    return {
        "name": analysis.name,
        "step": step.number,
        "steps": [{"step": s.number, "failed": s.failed, **s.totals()} for s in analysis.steps],
        "policy": _run_row(analysis).get("policy") or analysis.header.get("policy"),
        "started": analysis.header.get("started"),
        "complete": analysis.complete,
        "damage": analysis.damage,
        "totals": step.totals(),
        "overwrites": step.overwrites,
        "roles_at_peak": step.roles_at_peak,
        "run": _run_row(analysis),
        "unbudgeted_peak_bytes": analysis.header.get("unbudgeted_peak_bytes"),
        "length": (step.end - step.start) / 1e6,
        "roles": list(ROLES),
        "ms": [round(float(t), 4) for t in ms],
        "sizes": sizes.T.tolist(),
        "budgets": [[(ns - step.start) / 1e6, budget] for ns, budget in step.budgets],
        "again": [[(r.start - step.start) / 1e6, r.duration / 1e6] for r in step.runs if r.again],
        "evictions": _evictions(analysis, step),
        "recomputed": _most_recomputed(analysis, step),
        "held": _longest_held(analysis, step),
        "layers": layer_times(step),
        "curve": None if curve is None else _curve_rows(curve),
        "no_curve": _NO_CURVE[bool(analysis.header.get("parameters"))],
        "advice": [] if curve is None else advice(curve, step.budget_bytes),
    }


def _run_row(analysis: Analysis) -> dict[str, Any]:
    for note in analysis.notes:
        if "end" in note:
            return note["end"].get("row", {})
    return {}


def _evictions(analysis: Analysis, step: Step) -> list[dict[str, Any]]:
    scores = {(d.storage): d for d in step.decisions}
    rows = []
    for ns, index in step.evicted:
        storage, decision = analysis.storages[index], scores.get(index)
        score = None if decision is None or decision.score != decision.score else decision.score
        rows.append({"ms": (ns - step.start) / 1e6, "name": storage.name, "role": storage.role,
                     "bytes": storage.block_bytes, "score": score})  # fmt: skip
    return rows


def _most_recomputed(analysis: Analysis, step: Step) -> list[dict[str, Any]]:
    seconds: dict[int, list[float]] = defaultdict(list)
    sources = {}
    for run in step.runs:
        if run.again:
            seconds[run.number].append(run.duration / 1e6)
            sources[run.number] = run.source
    sizes: dict[int, int] = defaultdict(int)
    for storage in analysis.storages:
        if storage.call in seconds:
            sizes[storage.call] += storage.bytes
    ranked = sorted(seconds, key=lambda n: (-len(seconds[n]), -sum(seconds[n]), n))
    return [
        {"name": sources[n].label(), "layer": sources[n].layer, "times": len(seconds[n]),
         "ms": sum(seconds[n]), "bytes": sizes[n]}
        for n in ranked[:TOP]
    ]  # fmt: skip


def _longest_held(analysis: Analysis, step: Step) -> list[dict[str, Any]]:
    """By bytes times seconds, of what an op of this step made."""
    calls = {run.number for run in step.runs}

    def weight(storage: Storage) -> int:
        return storage.block_bytes * storage.resident_ns(step.start, step.end)

    made = [s for s in analysis.storages if s.call in calls]
    return [
        {"name": s.label(), "role": s.role, "shape": s.shape, "bytes": s.bytes,
         "ms": s.resident_ns(step.start, step.end) / 1e6, "evictions": s.evictions}
        for s in sorted(made, key=lambda s: (-weight(s), s.number))[:TOP]
    ]  # fmt: skip


def layer_times(step: Step) -> list[dict[str, Any]]:
    """Milliseconds of each layer's first runs and repeated runs, in the order of execution."""
    rows: dict[str, dict[str, Any]] = {}
    for run in step.runs:
        row = rows.setdefault(
            run.source.layer, {"layer": run.source.layer, "compute": 0.0, "again": 0.0, "calls": 0}
        )
        row["again" if run.again else "compute"] += run.duration / 1e6
        row["calls"] += 1
    return list(rows.values())


def _curve(analysis: Analysis) -> Curve | None:
    graph = analysis.header.get("graph")
    peak = analysis.header.get("unbudgeted_peak_bytes")
    if graph is None or not peak:
        return None
    from ..compile.opgraph import OpGraph
    from ..replay import replay_of

    replay = replay_of(OpGraph.from_dict(graph), graph["inputs"], graph["next_state"])
    return slowdown_curve(replay, peak)


def _curve_rows(curve: Curve) -> dict[str, Any]:
    return {
        "peak_bytes": curve.peak_bytes,
        "smallest_bytes": curve.smallest_bytes,
        "knee_bytes": None if curve.knee is None else curve.knee.budget_bytes,
        "points": [[p.budget_bytes, p.slowdown, p.policy] for p in curve.points],
    }


def advice(curve: Curve, budget: int | None) -> list[str]:
    """What to do, in whole sentences."""
    lines = []
    knee = curve.knee
    for limit in (1.05, 1.2):
        point = curve.cheapest_within(limit)
        if point is not None and point.slowdown is not None and point.budget_bytes != budget:
            lines.append(
                f"With {format_bytes(point.budget_bytes)} the slowdown would be "
                f"{point.slowdown:.2f}."
            )
    if knee is not None and knee.slowdown is not None:
        lines.append(
            f"Below {format_bytes(knee.budget_bytes)} (slowdown {knee.slowdown:.2f}) each MiB "
            "saved costs more and more time."
        )
    lines.append(
        f"The smallest budget that works is {format_bytes(curve.smallest_bytes)}; without one the "
        f"step takes {format_bytes(curve.peak_bytes)}."
    )
    return list(dict.fromkeys(lines))
