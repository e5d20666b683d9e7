"""Cost of finding what to evict, and of simulation as a whole, on one core.

Three tables: microseconds per eviction by search and number of storages in memory; simulated ops
a second on the LSTM log of the DTR authors at half its memory; seconds for their five logs under
seven policies and nine budgets. The latter two need the logs: --logs DIR.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from tvm_dtr import _core
from tvm_dtr.simulation import Trace, load_trace, simulate, workloads
from tvm_dtr.simulation.simulator import DEFAULT_POLICIES
from tvm_dtr.simulation.workloads import UNIT_BYTES, Step

CHAIN_POLICIES = ["dtr-eq", "dtr", "dtr-up", "msps", "e-star", "lru", "dtr-local"]
EVICTIONS = {"heap": 20_000, "sqrt": 2_000, "scan": 200}


def stream(resident: int, evictions: int, seed: int = 0) -> _core.Replay:
    """``resident`` storages of a page and then one more an op, under random costs, all kept."""
    ops = resident + evictions
    random = np.random.default_rng(seed)
    return Step(
        costs=np.round(10.0 ** random.uniform(3, 6, ops)),
        sizes=np.ones(ops + 1),
        inputs=np.zeros(ops, np.int64),
        starts=np.arange(ops + 1),
        results=np.empty(0, np.int64),
        keep=np.arange(1, ops + 1),
    ).replay()


def processor_seconds(work: Callable[[], Any], rounds: int = 3) -> float:
    """The least of ``rounds``: other processes only ever add."""
    best = math.inf
    for _ in range(rounds):
        start = time.process_time()
        work()
        best = min(best, time.process_time() - start)
    return best


def eviction_microseconds(search: str, policy: str, resident: int) -> float:
    """Time in the runtime's choose-and-evict loop, less that of filling the search at first."""
    count = EVICTIONS[search]
    if search == "heap":  # enough to stand out against the time that filling takes
        count = max(count, resident)
    least = {}
    for evictions in (1, count + 1):
        replay = stream(resident, evictions)
        runs = [
            replay.run(
                budget=(resident + 1) * UNIT_BYTES,
                policy=policy,
                search=search,
                thrash_limit=0.0,
                measure_search=True,
            )
            for _ in range(3 if resident >= 10**6 or search != "heap" else 15)
        ]
        assert all(run["evictions"] == evictions for run in runs)
        least[evictions] = min(run["search_seconds"] for run in runs)
    return (least[count + 1] - least[1]) / count * 1e6


def search_table(policy: str, decades: range) -> list[dict[str, Any]]:
    rows = []
    for decade in decades:
        row: dict[str, Any] = {"policy": policy, "resident": 10**decade}
        for search in ("heap", "scan", "sqrt"):
            row[f"{search}_us"] = eviction_microseconds(search, policy, 10**decade)
        print(row, flush=True)
        rows.append(row)
    return rows


def ops_per_second(trace: Trace, policy: str, fraction: float) -> dict[str, Any]:
    budget = int(trace.unbudgeted_peak_bytes * fraction)
    options = {"budget": budget, "policy": policy, "thrash_limit": 1.0, "exact_bytes": True}
    run = trace.replay.run(**options)
    seconds = processor_seconds(lambda: trace.replay.run(**options), rounds=15)
    ops = run["calls"] + run["rematerializations"]
    return {"trace": trace.name, "policy": policy, "ops": ops, "ops_per_second": ops / seconds}


def all_cases(traces: list[Trace]) -> dict[str, Any]:
    policies = [*DEFAULT_POLICIES, "random"]
    start = time.process_time()
    rows = simulate(traces, policies=policies, jobs=1)
    return {"cases": len(rows), "processor_seconds": time.process_time() - start}


def chain_table(policies: list[str], lengths: list[int], factor: float) -> list[dict[str, Any]]:
    """Recomputed ops over N for the chain of theorem 3.1 under ``factor`` sqrt(N) units."""
    rows = []
    for length in lengths:
        replay = workloads.linear_chain(length).replay
        row: dict[str, Any] = {"length": length, "units_over_root": factor}
        for policy in policies:
            budget = math.ceil(factor * math.sqrt(length)) * UNIT_BYTES
            run = replay.run(budget=budget, policy=policy, thrash_limit=20.0)
            ok = run["result"] == "ok"
            row[policy] = run["rematerializations"] / length if ok else run["result"]
        print(row, flush=True)
        rows.append(row)
    return rows


def machine() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return "unknown"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--logs", metavar="DIR", help="where the DTR authors' logs are")
    parser.add_argument("--policies", default="dtr-eq,dtr-local", help="of the search table")
    parser.add_argument("--decades", type=int, default=6, help="up to 10**N storages (default 6)")
    parser.add_argument("--json", metavar="FILE")
    options = parser.parse_args()
    result: dict[str, Any] = {"machine": machine()}
    if options.logs:
        traces = [load_trace(path) for path in sorted(Path(options.logs).glob("*.log.gz"))]
        (lstm,) = [trace for trace in traces if trace.name == "lstm"]
        result["speed"] = [ops_per_second(lstm, policy, 0.5) for policy in ("dtr-eq", "dtr")]
        result["all_cases"] = all_cases(traces)
        print(result["speed"], result["all_cases"])
    decades = range(3, options.decades + 1)
    policies = options.policies.split(",")
    result["search"] = [row for policy in policies for row in search_table(policy, decades)]
    lengths = [10**decade for decade in range(2, options.decades + 1)]
    result["chain"] = chain_table(CHAIN_POLICIES, lengths, 2)
    for factor in (2.5, 3):
        result["chain"] += chain_table(["dtr-eq", "dtr"], lengths, factor)
    if options.json:
        Path(options.json).write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
