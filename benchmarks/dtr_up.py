"""dtr-up against dtr-eq on graphs that it was not chosen on.

It was found on the DTR authors' five logs; here are other steps: graphs of the scheduling
literature (--graphs DIR, networkx node-link JSON), made-up workloads, and the training steps of
this project's models (--models, built with costs measured here). For each: slowdown of both at 50,
40 and 30 % of the peak, and the smallest budget, by steps of 1 %, under a thrash limit of 1.

  python benchmarks/dtr_up.py --graphs DIR --models resnet20,mobilenet --json F
"""

from __future__ import annotations

import argparse
import json
import math
from pathlib import Path
from typing import Any

import numpy as np

from tvm_dtr.simulation import Trace
from tvm_dtr.simulation.workloads import Step, make_workload

POLICIES = ("dtr-eq", "dtr-up")
FRACTIONS = (0.5, 0.4, 0.3)
WORKLOADS = ("resnet:1000", "transformer:1600", "recurrence:1000", "tree:1022", "dag:1000:1")
LIMIT = 1.0


def read_graph(path: Path) -> Trace:
    """One tensor a node; sizes count in units of 1/1000 of the largest."""
    data = json.loads(path.read_text())
    layered = "order" in data["graph"]
    names = ("0", "1") if layered else ("source", "target")
    cost_name, size_name = ("duration", "out_cost") if layered else ("cost_cpu", "cost_ram")
    nodes = {node["name" if layered else "id"]: node for node in data["nodes"]}
    order = data["graph"]["order"] if layered else sorted(nodes)
    place = {node: 1 + i for i, node in enumerate(order)}
    reads: list[list[int]] = [[] for _ in order]
    for link in data["links"]:
        source, target = (place[link[name]] for name in names)
        reads[target - 1].append(source)
    sizes = np.array([nodes[node][size_name] for node in order], float)
    units = np.maximum(1, np.ceil(1000 * sizes / sizes.max()))
    read = {source for row in reads for source in row}
    step = Step(
        costs=np.array([1000.0 * nodes[node][cost_name] for node in order]),
        sizes=np.concatenate([[1], units]),
        inputs=np.array([source for row in reads for source in row]),
        starts=np.concatenate([[0], np.cumsum([len(row) for row in reads])]),
        results=np.array([i for i in place.values() if i not in read]),
    )
    return Trace(path.stem, step.replay(), thrash_limit=LIMIT)


def model_trace(name: str, batch: int) -> Trace:
    import tvm_dtr
    from tvm_dtr import models

    program = tvm_dtr.build(
        models.make(name, batch=batch), loss="cross_entropy", optimizer=tvm_dtr.SGD(0.01)
    )
    return Trace(name, program.replay, thrash_limit=LIMIT)


def compare(trace: Trace) -> dict[str, Any]:
    row: dict[str, Any] = {"trace": trace.name, "slowdown": {}, "smallest": {}}
    peak = trace.unbudgeted_peak_bytes

    def run(policy: str, fraction: float) -> dict[str, Any]:
        return trace.replay.run(
            budget=int(fraction * peak), policy=policy, thrash_limit=LIMIT, steps=trace.steps
        )

    for policy in POLICIES:
        runs = [run(policy, fraction) for fraction in FRACTIONS]
        row["slowdown"][policy] = [r["slowdown"] if r["result"] == "ok" else None for r in runs]
        row["smallest"][policy] = next(
            (k for k in range(1, 100) if run(policy, k / 100)["result"] == "ok"), None
        )
    return row


def geometric_mean(rows: list[dict[str, Any]]) -> tuple[float, int]:
    """Of dtr-up's slowdown over dtr-eq's, over the cases where both work; and their number."""
    logs = [
        math.log(ours / theirs)
        for row in rows
        for theirs, ours in zip(*(row["slowdown"][p] for p in POLICIES), strict=True)
        if ours is not None and theirs is not None
    ]
    return (math.exp(sum(logs) / len(logs)) if logs else math.nan), len(logs)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--graphs", metavar="DIR")
    parser.add_argument("--models", default="", help="comma-separated")
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--json", metavar="FILE")
    options = parser.parse_args()
    traces = [make_workload(name) for name in WORKLOADS]
    if options.graphs:
        traces += [read_graph(path) for path in sorted(Path(options.graphs).glob("*.json"))]
    traces += [model_trace(name, options.batch) for name in filter(None, options.models.split(","))]
    rows = []
    for trace in traces:
        rows.append(compare(trace))
        print(rows[-1], flush=True)
    mean, cases = geometric_mean(rows)
    lower = sum((r["smallest"]["dtr-up"] or 100) < (r["smallest"]["dtr-eq"] or 100) for r in rows)
    higher = sum((r["smallest"]["dtr-up"] or 100) > (r["smallest"]["dtr-eq"] or 100) for r in rows)
    print(
        f"geometric mean {mean:.3f} over {cases} cases; smallest budget lower on {lower}, ", end=""
    )
    print(f"higher on {higher} of {len(rows)}")
    if options.json:
        result = {"geometric_mean": mean, "cases": cases, "lower": lower, "higher": higher}
        Path(options.json).write_text(json.dumps({**result, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
