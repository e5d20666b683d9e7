"""--policy plan: DTR for the first step, a schedule planned meanwhile for those after it.

The schedule runs as a program of its own in the same arena (tvm_dtr.passes.rewrite). Where a step
deviates, that is where memory was short and DTR had to evict underneath the schedule, the program
runs by DTR alone again.
"""

from __future__ import annotations

from typing import Any

from .errors import UsageError
from .passes.background import BackgroundPlan
from .passes.graph import graph_of_program
from .passes.planners import PLANNERS
from .passes.rewrite import planned_program
from .passes.schedule import Schedule
from .replay import RESERVE_BYTES

DEFAULT_PLANNER = "anneal"
TIME_LIMIT = 20.0  # seconds


def planner_of(policy: str) -> str | None:
    """The planner of ``plan`` or ``plan:NAME``; None for another policy.

    Raises:
        UsageError: there is no such planner.
    """
    if policy != "plan" and not policy.startswith("plan:"):
        return None
    name = policy.partition(":")[2] or DEFAULT_PLANNER
    if name not in PLANNERS:
        raise UsageError(f"unknown planner '{name}' in policy '{policy}': use plan:NAME with "
                         f"{', '.join(PLANNERS)}")  # fmt: skip
    return name


class PlannedSteps:
    """What a VM runs: the program itself, or its schedule once there is one.

    schedule: what the next step follows, None for DTR. reason: why there is none, for people.
    """

    def __init__(self, program: Any, budget: int, planner: str, seed: int) -> None:
        self.schedule: Schedule | None = None
        self.reason: str | None = None
        self.time_limit = TIME_LIMIT
        self._program, self._budget, self._planner, self._seed = program, budget, planner, seed
        self._background: BackgroundPlan | None = None

    def begin(self) -> None:
        """Starts planning, the first time it is called."""
        if self._background is None:
            self._background = BackgroundPlan(
                graph_of_program(self._program), self._budget - RESERVE_BYTES,
                self._planner, time_limit=self.time_limit, seed=self._seed,
            )  # fmt: skip
            self.reason = "planning"

    def plan_now(self) -> bool:
        """Waits for the planner; whether it has found a schedule."""
        self.begin()
        assert self._background is not None
        return self._background.take(wait=True) is not None

    def next_program(self, wait: bool = False) -> Any:
        """The program to change to before the next step; None: go on as before."""
        if self.schedule is not None or self.reason != "planning" or self._background is None:
            return None
        schedule = self._background.take(wait)
        if schedule is None:
            if self._background.ready:
                self.reason = self._background.error or "the planner failed"
            return None
        self.schedule, self.reason = schedule, None
        return planned_program(self._program, schedule)

    def counted(self, stats: dict[str, Any]) -> dict[str, Any]:
        """``planner``, and stats with what the schedule computed again as rematerializations.

        The VM cannot tell a first computation from another: seconds are shared out by cost.
        """
        schedule = self.schedule
        if schedule is None:
            return {"planner": None}
        share = 1 - schedule.own_cost / schedule.cost if schedule.cost else 0.0
        seconds = stats["compute_seconds"]
        return {
            "planner": schedule.method,
            "compute_seconds": seconds * (1 - share),
            "remat_seconds": stats["remat_seconds"] + seconds * share,
            "rematerializations": stats["rematerializations"] + schedule.recomputed_ops,
        }

    def after_step(self, evictions: int) -> Any:
        """Starts planning after the first step. The program to change back to if the step
        deviated; else None."""
        self.begin()
        if self.schedule is None or evictions == 0:
            return None
        self.reason = f"a step deviated from the schedule: {evictions} evictions"
        self.schedule = None
        return self._program

    def stop(self) -> None:
        if self._background is not None:
            self._background.stop()
