"""Runs steps of a program and collects the result fields."""

from __future__ import annotations

import contextlib
import statistics
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tvm_dtr.cli.report import progress
from tvm_dtr.cli.synthetic import synthetic_inputs
from tvm_dtr.errors import BudgetError, DTRError
from tvm_dtr.measured_costs import median_costs
from tvm_dtr.plot import MemoryTrace
from tvm_dtr.profile import profiled
from tvm_dtr.verify import Mismatch, Verifier

# The result fields that the VM's stats give; every table has them under these names.
STATS_FIELDS = (
    "budget_bytes",
    "peak_bytes",
    "pinned_bytes",
    "workspace_bytes",
    "compute_seconds",
    "remat_seconds",
    "search_seconds",
    "evictions",
    "rematerializations",
)


class MismatchError(DTRError):
    """A budgeted run is not bitwise the stock VM's."""


@dataclass(frozen=True)
class Settings:
    """What the runs of one comparison share. ``trace``: sample memory over one more step.
    ``events``: the file that takes the event trace of all steps; ``baseline``: the row of the run
    without a budget."""

    model: str
    steps: int
    seed: int
    policy: str
    trace: bool = False
    arena: str | None = None
    profile: bool = False
    lengths: Mapping[str, tuple[int, int]] | None = None
    events: str | None = None
    baseline: dict[str, Any] | None = None


@dataclass
class Run:
    """``row``: the result fields; ``trace``: memory over one step, if asked for; ``profile``: a
    row for each kernel over all steps but the first, if asked for.

    ``costs``: nanoseconds of each kernel, the median over the steps but the first; ``overhead_ns``:
    what a step takes outside of its kernels, the median over the same steps.
    """

    row: dict[str, Any]
    trace: MemoryTrace | None = None
    profile: list[dict[str, Any]] | None = None
    costs: dict[str, float] = field(default_factory=dict)
    overhead_ns: float = 0.0


def run_steps(program: Any, budget: str | None, settings: Settings, *, verify: bool) -> Run:
    """Runs ``settings.steps`` steps on one seeded batch, the same at each step; with control flow
    on a batch for each, and the peak is the highest of all steps. A program whose peak is not
    known yet then has that of this run, if there is no budget.

    The step time is the median of all steps but the first, which warms up.

    Raises:
      BudgetError, ThrashError: as the VM does.
      MismatchError: ``verify`` found a tensor that differs from the stock VM's.
    """
    import tvm_dtr

    inputs = synthetic_inputs(program, settings.seed, lengths=settings.lengths)
    vm = tvm_dtr.VirtualMachine(
        program, memory_budget=budget, policy=settings.policy, arena=settings.arena
    )
    if settings.events is not None:
        vm.start_trace(settings.events, settings.model)
    seconds: list[float] = []
    losses: list[float] = []
    peaks: list[int] = []
    costs: list[dict[str, float]] = []
    overheads: list[float] = []
    tensors = 0
    label = "without a budget" if budget is None else "within the budget"
    with contextlib.ExitStack() as stack:
        verifier = stack.enter_context(Verifier(program)) if verify else None
        report = stack.enter_context(progress(f"{settings.model}, {label}", settings.steps))
        profile = None
        for step in range(settings.steps):
            if settings.profile and step == min(1, settings.steps - 1):
                profile = stack.enter_context(profiled(vm, program.graph))
            if program.control_flow:
                inputs = synthetic_inputs(program, settings.seed, step, settings.lengths)
            outputs = vm.step(**inputs)
            peaks.append(vm.stats["peak_bytes"])
            seconds.append(vm.stats["step_seconds"])
            costs.append(vm.measured_costs())
            overheads.append(_overhead_ns(vm.stats))
            if "loss" in outputs:
                losses.append(float(outputs["loss"]))
            if verifier is not None:
                _refuse(step, verifier.check(inputs, outputs, vm.parameters))
                tensors = len(outputs) + len(vm.parameters)
            report(step + 1)
    if program.control_flow and budget is None:
        program.measured_peak_bytes = max(peaks)
    row = _row(settings, budget, vm.stats | {"peak_bytes": max(peaks)}, seconds, losses)
    choice, planned = vm.policy_choice, vm.planned_steps
    row.update(
        policy=vm.policy,
        arena=vm.arena,
        planner=vm.stats.get("planner"),
        planning_failure=None if planned is None else planned.reason,
        policy_reason=None if choice is None else choice.reason(),
        predicted_slowdown=None if choice is None else choice.prediction["slowdown"],
    )
    row.update(unbudgeted_peak_bytes=vm.stats["unbudgeted_peak_bytes"])
    row.update(verified=verify, verified_tensors=tensors)
    if profile is not None:
        row.update(profiled_steps=max(settings.steps - 1, 1), profile=profile)
    if settings.events is not None:
        if settings.baseline is not None:
            row["slowdown"] = row["step_seconds"] / settings.baseline["step_seconds"]
        vm.stop_trace(row={name: value for name, value in row.items() if name != "profile"})
    trace = _trace(vm, inputs, label) if settings.trace else None
    return Run(row, trace, profile, median_costs(costs[1:] or costs), _settled(overheads))


def _row(
    settings: Settings,
    budget: str | None,
    stats: dict[str, Any],
    seconds: list[float],
    losses: list[float],
) -> dict[str, Any]:
    return {
        "model": settings.model,
        "method": settings.policy,
        "memory_budget": budget,
        "result": "ok",
        "steps": settings.steps,
        "seed": settings.seed,
        **{name: stats[name] for name in STATS_FIELDS},
        "step_seconds": _settled(seconds),
        "slowdown": None,
        "loss": losses[-1] if losses else None,
        "losses": losses,
    }


def _settled(values: list[float]) -> float:
    """The median of all steps but the first, which warms up."""
    return statistics.median(values[1:] or values)


def _overhead_ns(stats: dict[str, Any]) -> float:
    kernels = stats["compute_seconds"] + stats["remat_seconds"]
    return 1e9 * (stats["step_seconds"] - kernels)


def failed_row(settings: Settings, budget: str | None, error: DTRError) -> dict[str, Any]:
    """The row of a run that the budget stopped."""
    oom = isinstance(error, BudgetError)
    row: dict[str, Any] = {
        "model": settings.model,
        "method": settings.policy,
        "memory_budget": budget,
        "result": "oom" if oom else "thrash",
        "steps": settings.steps,
        "seed": settings.seed,
        "error": str(error),
    }
    if isinstance(error, BudgetError):
        row.update(
            budget_bytes=error.budget_bytes,
            short_bytes=error.short_bytes,
            needed_budget_bytes=error.needed_budget_bytes,
        )
    return row


def fill_slowdown(runs: list[Run]) -> None:
    """Step time over that of the unbudgeted run, where there is one."""
    if runs[0].row["budget_bytes"] is not None:
        return
    base = runs[0].row["step_seconds"]
    for run in runs:
        run.row["slowdown"] = run.row["step_seconds"] / base


def _refuse(step: int, mismatches: list[Mismatch]) -> None:
    if mismatches:
        more = f" (and {len(mismatches) - 1} more tensors)" if len(mismatches) > 1 else ""
        raise MismatchError(f"step {step} differs from TVM's own VM in {mismatches[0]}{more}")


def _trace(vm: Any, inputs: dict[str, np.ndarray], label: str) -> MemoryTrace:
    vm.trace_memory(True)
    vm.step(**inputs)
    seconds, active_bytes = vm.memory_trace()
    return MemoryTrace(label, seconds, active_bytes)
