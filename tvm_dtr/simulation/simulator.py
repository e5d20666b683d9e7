"""Runs traces under policies and budgets on the VM's own runtime, with a virtual clock."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from .. import _core
from ..budget import parse_budget
from ..errors import UsageError
from ..replay import arena_for, auto_policies, better_policy
from ..threads import cores
from .trace import Trace, as_trace

DEFAULT_POLICIES = ("dtr-eq", "dtr", "dtr-up", "dtr-local", "lru", "size", "msps")
DEFAULT_BUDGETS = ("90%", "80%", "70%", "60%", "50%", "40%", "30%", "20%", "10%")


@dataclass(frozen=True)
class Settings:
    """What all cases of a simulation share; ``thrash_limit`` None: as each trace has it."""

    search: str = "heap"
    dealloc: str = "eager"
    seed: int = 0
    thrash_limit: float | None = None
    arena: str | None = None


def simulate(
    traces: Any,
    *,
    policies: Sequence[str] = DEFAULT_POLICIES,
    budgets: Iterable[str | int] = DEFAULT_BUDGETS,
    search: str = "heap",
    dealloc: str = "eager",
    seed: int = 0,
    thrash_limit: float | None = None,
    arena: str | None = None,
    jobs: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> list[dict[str, Any]]:
    """What each policy does under each budget: the decisions of the VM, without its kernels.

    Args:
        traces: a path, Program or Trace, or a list of them: see ``simulation.load_trace``.
        policies: names as ``--policy`` takes them; ``auto`` is the best of all by replay.
        budgets: ``"40%"`` of the trace's unbudgeted peak, ``"512MiB"`` or bytes.
        search: how a victim is found: ``heap``, ``scan`` or ``sqrt``.
        dealloc: what losing the last reference does: ``eager`` evicts, ``banish`` frees for good
            once nothing evicted depends on it, ``ignore`` does nothing until the step's end.
        thrash_limit: recomputation over the step's own work at which a case counts as
            thrashing, 0 for never; None: 1 for DTR logs, as published, and 10 for programs, as
            in the VM.
        arena: ``paged`` or ``best-fit``, as the VM's; None: best-fit where the policy is
            ``window``, else paged. With ``paged`` the sizes of DTR logs count as given, with no
            fragmentation at all.
        jobs: threads; None: one per core.
        progress: called with the number of cases done and of all.

    Returns:
        One row a case, in the order of traces, policies, budgets: ``trace``, ``method``,
        ``budget_fraction``, ``budget_bytes``, ``result`` (``ok``, ``oom`` or ``thrash``),
        ``slowdown`` (None unless ok), ``peak_bytes``, ``planning_seconds``, ``evictions``,
        ``rematerializations``; ``policy``, the one that ``auto`` chose.

    Raises:
        UsageError: an unknown policy or search, a budget that does not parse, a trace that
            cannot be read.
    """
    settings = Settings(search, dealloc, seed, thrash_limit, arena)
    _check(policies, settings)
    sizes = [parse_budget(budget) for budget in budgets]
    if any(size.unlimited for size in sizes):
        raise UsageError("a simulation needs budgets: use bytes, 512MiB or 40%, not none")
    many = list(traces) if isinstance(traces, list | tuple) else [traces]
    cases = []
    for trace in map(as_trace, many):
        peak = trace.unbudgeted_peak_bytes
        for policy in policies:
            cases += [(trace, policy, size.resolve(peak) or 0, settings) for size in sizes]
    return _run_all(cases, jobs or cores(), progress or (lambda done, total: None))


def _check(policies: Sequence[str], settings: Settings) -> None:
    known = ["auto", *_core.policies()]
    for policy in policies:
        if policy not in known:
            raise UsageError(f"unknown policy '{policy}': use some of {', '.join(known)}")
        arena_for(policy, settings.arena)
    for what, name, names in (
        ("search", settings.search, _core.searches()),
        ("deallocation", settings.dealloc, _core.deallocations()),
    ):
        if name not in names:
            raise UsageError(f"unknown {what} '{name}': use one of {', '.join(names)}")


def _run_all(
    cases: list[tuple[Trace, str, int, Settings]], jobs: int, progress: Callable[[int, int], None]
) -> list[dict[str, Any]]:
    lock, done = threading.Lock(), 0

    def run(case: tuple[Trace, str, int, Settings]) -> dict[str, Any]:
        nonlocal done
        row = _run_case(*case)
        with lock:
            done += 1
            progress(done, len(cases))
        return row

    with ThreadPoolExecutor(jobs) as pool:
        return list(pool.map(run, cases))


def _run_case(trace: Trace, policy: str, budget: int, settings: Settings) -> dict[str, Any]:
    start = time.perf_counter()
    chosen = policy
    result: dict[str, Any] | None = None
    arena = arena_for(policy, settings.arena)
    for name in auto_policies(arena) if policy == "auto" else (policy,):
        found = _replay(trace, name, budget, settings)
        if result is None or better_policy(found, result):
            chosen, result = name, found
    assert result is not None
    return {
        "trace": trace.name,
        "method": policy,
        "policy": chosen,
        "budget_fraction": round(budget / max(trace.unbudgeted_peak_bytes, 1), 6),
        "budget_bytes": budget,
        "result": result["result"],
        "slowdown": _slowdown(trace, result) if result["result"] == "ok" else None,
        "peak_bytes": result["peak_bytes"],
        "planning_seconds": time.perf_counter() - start,
        "evictions": result["evictions"],
        "rematerializations": result["rematerializations"],
    }


def _slowdown(trace: Trace, result: dict[str, Any]) -> float:
    """As in the result, but with the step's time outside of its kernels on both sides."""
    if trace.overhead_ns == 0:
        return result["slowdown"]
    return 1 + result["remat_cost"] / (result["compute_cost"] + trace.overhead_ns)


def _replay(trace: Trace, policy: str, budget: int, settings: Settings) -> dict[str, Any]:
    limit = settings.thrash_limit
    return trace.replay.run(
        budget=budget,
        policy=policy,
        search=settings.search,
        dealloc=settings.dealloc,
        seed=settings.seed,
        thrash_limit=trace.thrash_limit if limit is None else limit,
        exact_bytes=trace.exact_bytes,
        steps=trace.steps,
        arena=arena_for(policy, settings.arena),
    )
