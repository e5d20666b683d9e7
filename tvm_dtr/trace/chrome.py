"""A trace as Chrome's trace event JSON, which chrome://tracing and ui.perfetto.dev open."""

from __future__ import annotations

from typing import Any

from .analysis import Analysis
from .header import ROLES
from .steps import Step, Storage

_COMPUTE, _RECOMPUTE, _EVICT, _IN_PLACE = 1, 2, 3, 4
_TRACKS = {
    _COMPUTE: "model compute",
    _RECOMPUTE: "recomputation",
    _EVICT: "evictions",
    _IN_PLACE: "updates in place",
}


def chrome_events(analysis: Analysis) -> dict[str, Any]:
    """All steps: a track of the model's own calls, one of repeated calls, one of evictions, one of
    updates that wrote over what they replace, counters of memory by role and of the budget where it
    changes, and an arrow from each eviction to the call that made it good."""
    events: list[dict[str, Any]] = [_meta("process_name", 0, analysis.name)]
    events += [_meta("thread_name", track, name) for track, name in _TRACKS.items()]
    flow = 0
    for step in analysis.steps:
        events += _calls(step)
        events += [_counter(ns, sizes) for ns, sizes in step.memory]
        events += [_budget(ns, budget) for ns, budget in step.budgets]
        events += [_overwrite(ns, analysis.storages[index]) for ns, index in step.overwritten]
        flow = _evictions(analysis, step, events, flow)
    return {"traceEvents": events, "displayTimeUnit": "ms"}


def _meta(what: str, track: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "pid": 1, "tid": track, "name": what, "args": {"name": name}}


def _calls(step: Step) -> list[dict[str, Any]]:
    return [
        {
            "ph": "X",
            "pid": 1,
            "tid": _RECOMPUTE if run.again else _COMPUTE,
            "name": run.source.label(),
            "cat": run.source.phase,
            "ts": run.start / 1e3,
            "dur": run.duration / 1e3,
            "args": {"layer": run.source.layer, "step": step.number, "call": run.number},
        }
        for run in step.runs
    ]


def _counter(ns: int, sizes: tuple[int, ...]) -> dict[str, Any]:
    return {
        "ph": "C",
        "pid": 1,
        "name": "memory (bytes)",
        "ts": ns / 1e3,
        "args": dict(zip(ROLES, sizes, strict=True)),
    }


def _budget(ns: int, budget: int | None) -> dict[str, Any]:
    return {
        "ph": "C",
        "pid": 1,
        "name": "budget (bytes, 0: none)",
        "ts": ns / 1e3,
        "args": {"budget": budget or 0},
    }


def _overwrite(ns: int, storage: Storage) -> dict[str, Any]:
    return {
        "ph": "i",
        "s": "t",
        "pid": 1,
        "tid": _IN_PLACE,
        "name": storage.name,
        "ts": ns / 1e3,
        "args": {"bytes": storage.block_bytes, "role": storage.role},
    }


def _evictions(analysis: Analysis, step: Step, events: list[dict[str, Any]], flow: int) -> int:
    open_flows: dict[int, tuple[int, int]] = {}
    happenings = [(ns, 0, index) for ns, index in step.evicted]
    happenings += [(ns, 1, index) for ns, index in step.made_again]
    for ns, again, index in sorted(happenings):
        storage = analysis.storages[index]
        at = {"pid": 1, "ts": ns / 1e3, "name": storage.name}
        if not again:
            size = {"bytes": storage.block_bytes, "role": storage.role}
            events.append({**at, "ph": "i", "s": "t", "tid": _EVICT, "args": size})
            open_flows[index] = (ns, flow := flow + 1)
        elif index in open_flows:
            since, number = open_flows.pop(index)
            arrow = {"pid": 1, "cat": "rematerialization", "name": "made again", "id": number}
            events.append({**arrow, "ph": "s", "tid": _EVICT, "ts": since / 1e3})
            events.append({**arrow, "ph": "f", "bp": "e", "tid": _RECOMPUTE, "ts": ns / 1e3})
    return flow
