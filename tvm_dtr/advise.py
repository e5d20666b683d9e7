"""What budget to choose: predicted slowdown over the budget, its knee, and the largest batch.

Everything is a replay of the step on the VM's own runtime without its kernels; times come from
profiled steps where there are some, else from the costs stored with the program.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from . import _core
from .errors import BudgetError
from .replay import AUTO_POLICIES, RESERVE_BYTES, STEPS, better_policy
from .threads import cores

ACCEPTABLE_SLOWDOWN = 1.2  # what `--memory-budget auto` takes at most
POINTS = 17  # of a curve
_LIMIT = 10.0  # recomputation over own work, as in the VM
_TOLERANCE = 512  # the smallest budget is known to a 512th of the peak


@dataclass(frozen=True)
class Point:
    """One budget: ``slowdown`` is None where no policy works."""

    budget_bytes: int
    slowdown: float | None
    policy: str | None
    rematerializations: int = 0


@dataclass(frozen=True)
class Curve:
    """Points from the peak down; bytes. knee: where less memory starts to cost much more time."""

    peak_bytes: int
    smallest_bytes: int
    points: list[Point]

    @property
    def knee(self) -> Point | None:
        """The point farthest below the line between the curve's ends (Satopaa et al., 2011)."""
        works = [p for p in self.points if p.slowdown is not None]
        if len(works) < 3:
            return None
        first, last = works[0], works[-1]
        width = max(first.budget_bytes - last.budget_bytes, 1)
        height = max((last.slowdown or 1) - (first.slowdown or 1), 1e-9)

        def depth(point: Point) -> float:
            x = (first.budget_bytes - point.budget_bytes) / width
            return x - ((point.slowdown or 1) - (first.slowdown or 1)) / height

        return max(works, key=depth)

    def cheapest_within(self, slowdown: float) -> Point | None:
        """The smallest budget whose predicted slowdown is at most ``slowdown``."""
        fits = [p for p in self.points if p.slowdown is not None and p.slowdown <= slowdown]
        return min(fits, key=lambda p: p.budget_bytes, default=None)


def predict(
    replay: _core.Replay,
    budget: int,
    seconds: Sequence[float] | None = None,
    step_seconds: float | None = None,
    measured: _core.Replay | None = None,
    beside: float = 0.0,
    policies: Sequence[str] = AUTO_POLICIES,
) -> Point:
    """What the best policy does under a budget.

    seconds: measured time of each op of the graph; step_seconds: of the whole unbudgeted step,
    what the ops do not account for included. Without them, the costs stored with the program.
    measured: the step with costs as a machine has them after its first steps, by which it then
    chooses the policy anew; whether a budget works at all it finds by those stored.
    beside: seconds that running an op again takes besides its kernel: the evictions that made it
    necessary, finding places, moving pages.
    """
    point = _best_point(replay, budget, seconds, step_seconds, beside, policies)
    if measured is None or point.slowdown is None:
        return point
    settled = _best_point(measured, budget, seconds, step_seconds, beside, policies)
    return point if settled.slowdown is None else settled


def _best_point(
    replay: _core.Replay,
    budget: int,
    seconds: Sequence[float] | None,
    step_seconds: float | None,
    beside: float,
    policies: Sequence[str],
) -> Point:
    best: dict[str, Any] | None = None
    name = None
    for policy in policies:
        limit = _LIMIT if best is None else min(_LIMIT, max(best["slowdown"] - 1, 1e-6))
        result = replay.run(
            budget=budget, policy=policy, thrash_limit=limit, steps=STEPS, events=bool(seconds)
        )
        if better_policy(result, best):
            best, name = result, policy
    if best is None:
        return Point(budget, None, None)
    slowdown = best["slowdown"]
    if seconds:
        again = sum(seconds[op] + beside for kind, op in best["events"] if kind == "rematerialize")
        slowdown = 1 + again / max(step_seconds or 0.0, sum(seconds))
    return Point(budget, slowdown, name, best["rematerializations"])


def slowdown_curve(
    replay: _core.Replay,
    peak: int,
    seconds: Sequence[float] | None = None,
    step_seconds: float | None = None,
    measured: _core.Replay | None = None,
    beside: float = 0.0,
    points: int = POINTS,
) -> Curve:
    """Predictions at ``points`` budgets between the smallest that works and the peak; arguments as
    of ``predict``."""
    smallest = min(smallest_budgets(replay, peak))
    budgets = sorted(
        {smallest + round((peak - smallest) * i / (points - 1)) for i in range(points)},
        reverse=True,
    )
    with ThreadPoolExecutor(cores()) as pool:
        found = list(
            pool.map(lambda b: predict(replay, b, seconds, step_seconds, measured, beside), budgets)
        )
    return Curve(peak, smallest, found)


def smallest_budgets(replay: _core.Replay, peak: int) -> list[int]:
    """The smallest budget that works, under each of the policies that ``auto`` tries first; at
    most the peak, which needs no reserve, for nothing is evicted."""
    tolerance = max(65536, peak // _TOLERANCE)
    with ThreadPoolExecutor(cores()) as pool:
        return list(
            pool.map(
                lambda policy: min(
                    peak,
                    replay.smallest_budget(
                        policy=policy,
                        thrash_limit=_LIMIT / 2,
                        tolerance=tolerance,
                        reserve=RESERVE_BYTES,
                        steps=STEPS,
                    ),
                ),
                AUTO_POLICIES[:4],
            )
        )


def automatic_budget(program: Any, slowdown: float = ACCEPTABLE_SLOWDOWN) -> int:
    """The smallest budget, to a 64th of the peak, whose predicted slowdown is acceptable.

    Raises:
        BudgetError: never for a program that runs without a budget; the peak always works.
    """
    peak = program.unbudgeted_peak_bytes
    low, high = min(smallest_budgets(program.replay, peak)), peak
    if _fits(program.replay, low, slowdown):
        return low
    while high - low > max(peak // 64, 65536):
        middle = (low + high) // 2
        if _fits(program.replay, middle, slowdown):
            high = middle
        else:
            low = middle
    if not _fits(program.replay, high, math.inf):
        raise BudgetError("no budget works for this program", budget_bytes=high)
    return high


def _fits(replay: _core.Replay, budget: int, slowdown: float) -> bool:
    point = predict(replay, budget)
    return point.slowdown is not None and point.slowdown <= slowdown


def scaled_graph(graph: Any, batch: int, rows: int, fixed: set[tuple[int, ...]]) -> Any:
    """The OpGraph of the same step on ``rows`` rows in place of ``batch``, as far as shapes tell.

    Tensors whose first dimension is a multiple of the batch grow with it, and transposed matrices
    whose second is the batch, but for those with the shape of a parameter (``fixed``).
    An op that touches one costs as many times more.
    """
    from .compile.opgraph import Kernel, OpGraph, OpInfo

    factor = rows / batch
    fixed = fixed | {shape[::-1] for shape in fixed}  # gradients are transposed at times
    grows = [tensor.shape not in fixed and _by_row(tensor.shape, batch) for tensor in graph.tensors]
    storages = list(graph.storages)
    for tensor, grown in zip(graph.tensors, grows, strict=True):
        if grown:
            storages[tensor.storage] = round(graph.storages[tensor.storage] * factor)
    kernels: list[Kernel] = []
    ops: list[OpInfo] = []
    for op in graph.ops:
        kernel = graph.kernels[op.kernel]
        grown = any(grows[t] for t in [*op.inputs, *op.outputs])
        kernels.append(
            Kernel(kernel.name, kernel.cost_ns * (factor if grown else 1), kernel.workspace_bytes)
        )
        ops.append(OpInfo(len(ops), op.inputs, op.outputs, op.source))
    return OpGraph(
        kernels,
        storages,
        graph.tensors,
        ops,
        graph.parameters,
        graph.constants,
        graph.results,
        graph.instructions,
    )


def _by_row(shape: tuple[int, ...], batch: int) -> bool:
    return bool(shape) and (shape[0] % batch == 0 or (len(shape) == 2 and shape[1] == batch))


def largest_batch(program: Any, memory: int, slowdown: float = math.inf) -> int:
    """The most rows whose step is predicted to run in ``memory`` bytes at most that much slower;
    0 if not even one row does. An estimate: kernels are not compiled for it."""
    from .replay import replay_of, step_boundary

    batch = program.inputs[0].shape[0]
    fixed = {tuple(spec.shape) for spec in program.state}
    boundary = step_boundary(program)

    def works(rows: int) -> bool:
        scaled = scaled_graph(program.graph, batch, rows, fixed)
        return _fits(replay_of(scaled, *boundary), memory, slowdown)

    if not works(1):
        return 0
    low, high = 1, 2
    while works(high) and high < 1 << 20:
        low, high = high, 2 * high
    while high - low > max(1, low // 64):
        middle = (low + high) // 2
        low, high = (middle, high) if works(middle) else (low, middle)
    return low
