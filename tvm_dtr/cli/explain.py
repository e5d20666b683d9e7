"""``run --explain``: the last decisions of a run with their scores, from its event trace."""

from __future__ import annotations

import math
from typing import Any

from tvm_dtr.cli.report import mebibytes, print_table

DECISIONS = 20


def print_decisions(path: str, count: int = DECISIONS) -> None:
    """The last ``count`` evictions and repeated ops of the trace, the newest at the end."""
    from tvm_dtr.trace import read_events
    from tvm_dtr.trace.analysis import Analysis

    rows = decisions(Analysis(read_events(path)))[-count:]
    print_table(
        f"The last {len(rows)} decisions",
        ["step", "at ms", "decision", "what", "role", "MiB", "score", "candidates"],
        rows,
    )


def decisions(analysis: Any) -> list[list[str]]:
    """A row for each storage that was evicted and each op that ran again, in order of time."""
    found: list[tuple[int, list[str]]] = []
    for step in analysis.steps:
        for decision in step.decisions:
            storage = analysis.storages[decision.storage]
            score = "-" if math.isnan(decision.score) else f"{decision.score:.3g}"
            row = ["evict", storage.name, storage.role, mebibytes(storage.block_bytes)]
            at = [str(step.number), f"{(decision.ns - step.start) / 1e6:.2f}"]
            found.append((decision.ns, [*at, *row, score, str(decision.candidates)]))
        for run in step.runs:
            if run.again:
                at = [str(step.number), f"{(run.start - step.start) / 1e6:.2f}"]
                row = ["run again", run.source.label(), run.source.phase, "", "", ""]
                found.append((run.start, [*at, *row]))
    return [row for _, row in sorted(found, key=lambda item: item[0])]
