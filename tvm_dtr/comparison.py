"""compare: DTR and static planners on one model, predicted and measured.

All VMs of one budget run a step in turn, round after round, so that a slow moment of the machine
meets all alike; step times are medians over the rounds but the first.
"""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from .budget import parse_budget
from .errors import BudgetError, ThrashError, UsageError

ONLINE = "dtr-online"
PLAN = "plan"
DEFAULT_BUDGETS = ("90%", "70%", "50%", "40%", "30%")
Row = dict[str, Any]


def default_methods() -> tuple[str, ...]:
    """DTR online, every planner that needs no solver, and the policy ``plan``."""
    from .passes import DEFAULT_METHODS

    return (ONLINE, *DEFAULT_METHODS, PLAN)


def compare(
    program: Any,
    *,
    name: str = "program",
    budgets: Iterable[str | int] = DEFAULT_BUDGETS,
    methods: Sequence[str] | None = None,
    rounds: int = 5,
    time_limit: float = 20.0,
    seed: int = 0,
    progress: Callable[[int, int], object] | None = None,
) -> list[Row]:
    """What each method makes of each budget.

    Args:
        program: from ``tvm_dtr.build`` or ``load``.
        budgets: ``"40%"`` of the unbudgeted peak, ``"512MiB"`` or bytes.
        methods: planners (``tvm_dtr.passes.PLANNERS``); ``dtr-online``, the VM with the policy
            auto; ``plan``, the VM's policy of that name once its schedule is there.
        rounds: steps of each VM; the first does not count.
        time_limit: seconds for each plan of a planner that searches.

    Returns:
        One row a method and budget: ``trace``, ``method``, ``budget_fraction``, ``budget_bytes``,
        ``result`` (``ok``, ``infeasible``, ``unsupported``, ``oom`` or ``thrash``), ``slowdown``
        and ``step_seconds`` (measured), ``predicted_slowdown``, ``peak_bytes`` (measured),
        ``predicted_peak_bytes``, ``unbudgeted_peak_bytes``, ``planning_seconds``,
        ``recomputed_ops``, ``bitwise`` (every output of every step equals the unbudgeted VM's),
        ``error``.

    Raises:
        UsageError: an unknown method, a budget that does not parse.

    Where control flow depends on data, planners and ``plan`` are ``unsupported`` and DTR runs.
    """
    from .cli.synthetic import synthetic_inputs
    from .passes import NotPlannableError, graph_of_program
    from .passes.planners import check_methods

    methods = tuple(methods or default_methods())
    check_methods(m for m in methods if m not in (ONLINE, PLAN))
    sizes = [parse_budget(budget) for budget in budgets]
    if any(size.unlimited for size in sizes):
        raise UsageError("a comparison needs budgets: use bytes, 512MiB or 40%, not none")
    inputs = synthetic_inputs(program, seed)
    graph, refusal = None, None
    try:
        graph = graph_of_program(program, name)
    except NotPlannableError as error:
        refusal = error
        program.measure(inputs)
    rows: list[Row] = []
    for size in sizes:
        budget = size.resolve(program.unbudgeted_peak_bytes) or 0
        runs = []
        for method in methods:
            run = _Run(program, name, method, budget)
            run.prepare(graph, time_limit, seed, refusal)
            runs.append(run)
        rows += _measure(program, runs, inputs, rounds)
        del runs
        gc.collect()
        if progress is not None:
            progress(len(rows), len(sizes) * len(methods))
    return rows


def _measure(program: Any, runs: list[_Run], inputs: Any, rounds: int) -> list[Row]:
    import tvm_dtr

    base = tvm_dtr.VirtualMachine(program, memory_budget=None)
    seconds = []
    for _ in range(max(rounds, 2)):
        outputs = base.step(**inputs)
        seconds.append(base.stats["step_seconds"])
        for run in runs:
            run.step(inputs, outputs)
    unbudgeted = statistics.median(seconds[1:])
    return [run.finished(unbudgeted) for run in runs]


class _Run:
    """One method under one budget."""

    def __init__(self, program: Any, name: str, method: str, budget: int) -> None:
        self.program, self.method, self.budget = program, method, budget
        self.vm: Any = None
        self.seconds: list[float] = []
        self.peaks: list[int] = []
        self.row: Row = {
            "trace": name,
            "method": method,
            "budget_fraction": round(budget / max(program.unbudgeted_peak_bytes, 1), 6),
            "budget_bytes": budget,
            "result": "ok",
            "slowdown": None,
            "step_seconds": None,
            "predicted_slowdown": None,
            "peak_bytes": None,
            "predicted_peak_bytes": None,
            "unbudgeted_peak_bytes": program.unbudgeted_peak_bytes,
            "planning_seconds": 0.0,
            "recomputed_ops": None,
            "bitwise": None,
            "error": None,
        }

    def prepare(self, graph: Any, time_limit: float, seed: int, refusal: Exception | None) -> None:
        """``refusal``: why the program cannot be planned for, if it cannot."""
        if refusal is not None and self.method != ONLINE:
            return self._fail("unsupported", refusal)
        try:
            self._prepare(graph, time_limit, seed)
        except BudgetError as error:
            self._fail("infeasible", error)

    def _prepare(self, graph: Any, time_limit: float, seed: int) -> None:
        import tvm_dtr
        from tvm_dtr.passes.planners import plan_row
        from tvm_dtr.passes.rewrite import planned_program

        program, method, budget = self.program, self.method, self.budget
        if method in (ONLINE, PLAN):
            policy = "auto" if method == ONLINE else "plan"
            self.vm = tvm_dtr.VirtualMachine(program, memory_budget=budget, policy=policy)
            choice = self.vm.policy_choice
            if choice is not None:
                self.row["predicted_slowdown"] = choice.prediction["slowdown"]
                self.row["predicted_peak_bytes"] = choice.prediction["peak_bytes"]
            if method == PLAN:
                self._wait_for_plan(time_limit)
            return
        found, schedule = plan_row(graph, method, budget, time_limit, seed)
        copied = ("result", "error", "planning_seconds")
        self.row.update({field: found[field] for field in copied})
        if schedule is None:
            return
        self._predicted(schedule)
        planned = planned_program(program, schedule)
        self.vm = tvm_dtr.VirtualMachine(planned, memory_budget=budget, policy="dtr-eq")

    def _wait_for_plan(self, time_limit: float) -> None:
        self.vm.planned_steps.time_limit = time_limit
        started = time.perf_counter()
        if self.vm.wait_for_plan():
            self._predicted(self.vm.planned_steps.schedule)
        self.row["planning_seconds"] = time.perf_counter() - started

    def _predicted(self, schedule: Any) -> None:
        self.row["predicted_slowdown"] = schedule.slowdown
        self.row["predicted_peak_bytes"] = schedule.peak_bytes
        self.row["recomputed_ops"] = schedule.recomputed_ops

    def step(self, inputs: Any, expected: Any) -> None:
        if self.vm is None:
            return
        try:
            outputs = self.vm.step(**inputs)
        except BudgetError as error:
            return self._fail("oom", error)
        except ThrashError as error:
            return self._fail("thrash", error)
        self.seconds.append(self.vm.stats["step_seconds"])
        self.peaks.append(self.vm.counters()["peak_active_bytes"])
        equal = all(outputs[k].tobytes() == expected[k].tobytes() for k in expected)
        self.row["bitwise"] = equal and self.row["bitwise"] is not False

    def _fail(self, result: str, error: Exception) -> None:
        self.row.update(result=result, error=str(error))
        self.vm = None

    def finished(self, unbudgeted_seconds: float) -> Row:
        if self.vm is None:
            return self.row
        seconds = statistics.median(self.seconds[1:])
        self.row.update(
            step_seconds=seconds,
            slowdown=seconds / unbudgeted_seconds,
            peak_bytes=max(self.peaks[1:]),
        )
        if self.row["recomputed_ops"] is None:
            self.row["recomputed_ops"] = self.vm.stats["rematerializations"]
        return self.row
