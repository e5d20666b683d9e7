"""A plan made while training goes on: in a thread, which the core's planners leave free to run."""

from __future__ import annotations

import atexit
import threading
import weakref
from collections.abc import Callable

from ..errors import DTRError
from .graph import PlanGraph
from .planners import plan
from .schedule import Schedule

# Planners that run without the interpreter's lock, and what stops each.
_running: weakref.WeakKeyDictionary[threading.Thread, threading.Event] = weakref.WeakKeyDictionary()


@atexit.register
def _stop_all() -> None:
    """A thread that comes back from C++ when the interpreter is gone would end the process."""
    threads = list(_running.items())
    for _, stopped in threads:
        stopped.set()
    for thread, _ in threads:
        thread.join()


class BackgroundPlan:
    """Plans once; ``take`` gives the schedule when it is ready.

    error: why there is none. stop: ends the search early.
    """

    def __init__(
        self, graph: PlanGraph, budget: int, method: str, *, time_limit: float, seed: int
    ) -> None:
        self.error: str | None = None
        self._result: Schedule | None = None
        self._stopped = threading.Event()
        stopped = self._stopped  # not self: the thread must not keep the owner alive

        def progress(*_: object) -> bool:
            return not stopped.is_set()

        self._thread = threading.Thread(
            target=_run, args=(self._done, graph, budget, method, time_limit, seed, progress),
            daemon=True,
        )  # fmt: skip
        _running[self._thread] = stopped
        self._thread.start()

    def _done(self, schedule: Schedule | None, error: str | None) -> None:
        self._result, self.error = schedule, error

    @property
    def ready(self) -> bool:
        return not self._thread.is_alive()

    def take(self, wait: bool = False) -> Schedule | None:
        """The schedule, or None while there is none (yet)."""
        if wait:
            self._thread.join()
        return self._result if self.ready else None

    def stop(self) -> None:
        self._stopped.set()


def _run(
    done: Callable[[Schedule | None, str | None], None],
    graph: PlanGraph,
    budget: int,
    method: str,
    time_limit: float,
    seed: int,
    progress: Callable[..., bool],
) -> None:
    try:
        done(plan(graph, budget, method, time_limit=time_limit, seed=seed, progress=progress), None)
    except DTRError as error:
        done(None, str(error))
