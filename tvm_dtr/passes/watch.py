"""The watch over one search by a solver: its time, what it has found, whether to go on."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

Progress = Callable[[float, float | None, float], object]
_POLL_SECONDS = 0.1


class StoppedError(Exception):
    """The time is over, or whoever asked for a plan wants none any more."""


class SearchWatch:
    """Seconds since it was made, and (seconds, cost of the best so far, bound) for ``progress``."""

    def __init__(self, time_limit: float, bound: float, progress: Progress | None) -> None:
        self.time_limit = time_limit
        self._cost: float | None = None
        self._bound, self._progress = bound, progress
        self._started = time.perf_counter()

    @property
    def left(self) -> float:
        """Seconds of the limit."""
        return self.time_limit - (time.perf_counter() - self._started)

    def report(self, cost: float | None, bound: float) -> bool:
        """Tells ``progress``; whether the search is to go on."""
        self._cost, self._bound = cost, bound
        return self.wanted()

    def wanted(self) -> bool:
        if self._progress is None:
            return True
        seconds = time.perf_counter() - self._started
        return self._progress(seconds, self._cost, self._bound) is not False

    def check(self) -> None:
        """Raises StoppedError where the search is to end: for what a solver is not yet part of."""
        if self.left <= 0 or not self.wanted():
            raise StoppedError

    def run(self, solve: Callable[[], Any], interrupt: Callable[[], object]) -> Any:
        """What ``solve`` gives, which runs in a thread and is interrupted if nobody wants it.

        Solvers look at a limit or call back now and then only. An interrupted one still returns.
        """
        results: list[Any] = []
        errors: list[BaseException] = []

        def work() -> None:
            try:
                results.append(solve())
            except BaseException as error:
                errors.append(error)

        # A daemon: what waits for it at the end of the process is whoever can interrupt it.
        thread = threading.Thread(target=work, daemon=True)
        thread.start()
        try:
            while thread.is_alive():
                thread.join(_POLL_SECONDS)
                if self.left <= 0 or not self.wanted():
                    interrupt()
        except BaseException:
            interrupt()
            thread.join()
            raise
        if errors:
            raise errors[0]
        return results[0]
