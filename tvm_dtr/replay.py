"""A program's step on the runtime without its kernels: what a budget will do is known before."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

from . import _core
from .budget import format_bytes
from .errors import BudgetError, UsageError

if TYPE_CHECKING:
    from .program import Program

# Small tensors of the state share pages with temporaries from the second step on, and the second
# leaves others to the third than the first did to it.
STEPS = 3
# A budget that an error names works with this much less, too: pages that blocks share, which may
# fill up otherwise than in the replay.
RESERVE_BYTES = 4 * 4096
_TOLERANCE_BYTES = 65536  # of the smallest budget that an error names
_NO_LIMIT = 1000.0  # a replay that recomputes more than this is as good as endless
_WORTH_CHANGING = 0.005  # of slowdown, to leave the default policy
# In the order in which they are tried: the default, the exact neighbourhood, then the rest.
AUTO_POLICIES = ("dtr-eq", "dtr", "dtr-up", "msps", "dtr-local", "lru", "size")
_CODES = {"op": 0, "view": 1, "kill": 2, "const": 3}


def replay_of_program(program: Program) -> _core.Replay:
    """The replay of a program, which can go on for several ``steps``: inputs are the caller's
    memory, and state results take the place of the old state."""
    return replay_of(program.graph, *step_boundary(program))


def unbudgeted_peak(replay: _core.Replay, steps: int = STEPS, exact_bytes: bool = False) -> int:
    """The most bytes in use at a time when nothing is ever evicted, over ``steps`` steps in a row:
    they differ by some pages, which blocks share in another way each time."""
    return max(
        replay.run(steps=n, exact_bytes=exact_bytes)["peak_bytes"] for n in range(1, steps + 1)
    )


def step_boundary(program: Program) -> tuple[list[int], list[tuple[int, int]]]:
    """Tensors in the caller's memory, and (result, parameter) tensors of the state."""
    graph = program.graph
    inputs = graph.parameters[: len(program.inputs)]
    names = (spec.name for spec in program.state)
    places = dict(zip(names, graph.parameters[len(inputs) :], strict=True))
    next_state = [
        (tensor, places[result.name])
        for result, tensor in zip(program.results, graph.results, strict=True)
        if result.kind == "state"
    ]
    return list(inputs), next_state


def replay_of(
    graph: Any, external: Sequence[int] = (), next_state: Sequence[tuple[int, int]] = ()
) -> _core.Replay:
    """The replay of an OpGraph: ``run(budget=...)``, ``smallest_budget()``.

    ``external``: tensors in memory of the caller's; ``next_state``: (result, parameter) tensors.
    """
    return _core.Replay(
        kernels=[(kernel.cost_ns, kernel.workspace_bytes) for kernel in graph.kernels],
        storages=list(graph.storages),
        tensors=[(tensor.storage, tensor.base) for tensor in graph.tensors],
        ops=[(op.kernel, list(op.inputs), list(op.outputs)) for op in graph.ops],
        pinned=list(graph.parameters),
        results=list(graph.results),
        instructions=[(_CODES[kind], index) for kind, index in graph.instructions],
        external=list(external),
        next_state=list(next_state),
        overwrites=list(graph.overwrites),
        dispatch_cost=_core.DISPATCH_COST,  # as the virtual machine has it
    )


@dataclass(frozen=True)
class Choice:
    """A policy and what its replay under the budget gave, by ``run()`` of ``_core.Replay``.

    ``tried`` holds the slowdown of every policy tried, None where it ran out of memory, thrashed
    or could not beat the best one before it. ``costs``: where those of the kernels came from,
    ``built`` (measured when building) or ``measured`` (by the VM's own step).
    """

    policy: str
    prediction: dict[str, Any]
    tried: dict[str, float | None]
    costs: str = "built"

    def reason(self) -> str:
        """Why this policy, in one line."""
        slowdown = self.prediction["slowdown"]
        others = [
            f"{name} {value:.3f}" if value is not None else f"{name} worse"
            for name, value in self.tried.items()
            if name != self.policy
        ]
        costs = " by the costs of its own step" if self.costs == "measured" else ""
        why = f"{self.policy}: predicted slowdown {slowdown:.3f}{costs}"
        return f"{why} ({', '.join(others)})" if others else why


def auto_policies(arena: str) -> tuple[str, ...]:
    """What ``auto`` chooses from: ``window`` too where blocks have addresses to choose by."""
    return AUTO_POLICIES if arena == "paged" else ("window", *AUTO_POLICIES)


def arena_for(policy: str, arena: str | None) -> str:
    """The arena to run with: ``paged``, or ``best-fit`` for ``window``, unless one is named.

    Raises:
        UsageError: there is no such arena, or the policy cannot choose by its addresses.
    """
    if arena is None:
        return "best-fit" if policy == "window" else "paged"
    if arena not in _core.arenas():
        raise UsageError(f"unknown arena '{arena}': use one of {', '.join(_core.arenas())}")
    if policy == "window" and arena != "best-fit":
        raise UsageError(
            f"policy 'window' chooses by address, which the arena '{arena}' does not keep in "
            "order: use the arena best-fit"
        )
    return arena


def better_policy(result: dict[str, Any], best: dict[str, Any] | None) -> bool:
    """Whether ``auto`` leaves ``best`` for ``result``, both from ``run()`` of ``_core.Replay``."""
    if result["result"] != "ok":
        return False
    if best is None or best["result"] != "ok":
        return True
    return result["slowdown"] < best["slowdown"] - _WORTH_CHANGING


def choose_policy(
    program: Program,
    budget: int,
    policy: str,
    seed: int,
    thrash_limit: float,
    arena: str = "paged",
) -> Choice:
    """The policy to run a program with: ``policy`` itself or, for ``auto``, the best by replay.

    ``auto`` keeps dtr-eq unless another policy's predicted slowdown is lower by more than 0.005.

    Raises:
        BudgetError: no step can run under the budget; ``needed_budget_bytes`` is the smallest
            budget that works.
    """
    names = auto_policies(arena) if policy == "auto" else (policy,)
    best, failure = _try_policies(program.replay, budget, names, seed, thrash_limit, arena)
    if best is None:
        _refuse(program, budget, names, seed, thrash_limit, failure, arena)
    return best


def best_policy(
    replay: _core.Replay, budget: int, seed: int, thrash_limit: float, arena: str = "paged"
) -> Choice | None:
    """What ``auto`` chooses for a step of a program; None where none can run it."""
    return _try_policies(replay, budget, auto_policies(arena), seed, thrash_limit, arena)[0]


def _try_policies(
    replay: _core.Replay,
    budget: int,
    names: Sequence[str],
    seed: int,
    thrash_limit: float,
    arena: str,
) -> tuple[Choice | None, dict[str, Any]]:
    """The best of the policies, and what the first of them gave."""
    tried: dict[str, float | None] = {}
    best: Choice | None = None
    first: dict[str, Any] = {}
    for name in names:
        limit = thrash_limit if thrash_limit > 0 else _NO_LIMIT
        if best is not None:  # no need to follow one that is already worse
            limit = min(limit, best.prediction["slowdown"] - 1)
        result = replay.run(
            budget=budget, policy=name, seed=seed, thrash_limit=limit, steps=STEPS, arena=arena
        )
        first = first or result
        tried[name] = result["slowdown"] if result["result"] == "ok" else None
        if better_policy(result, None if best is None else best.prediction):
            best = Choice(name, result, tried)
    return best, first


def _refuse(
    program: Program,
    budget: int,
    names: tuple[str, ...],
    seed: int,
    thrash_limit: float,
    failure: dict[str, Any],
    arena: str,
) -> NoReturn:
    from .explain import held_by_op

    graph = program.graph
    tolerance = max(_TOLERANCE_BYTES, program.unbudgeted_peak_bytes // 512)
    options: dict[str, Any] = {"seed": seed, "tolerance": tolerance}
    # Half the limit: near it a step is chaotic, and must not be what we recommend.
    options["thrash_limit"] = thrash_limit / 2 if thrash_limit > 0 else _NO_LIMIT
    options.update(reserve=RESERVE_BYTES, steps=STEPS, arena=arena)
    smallest = min(program.replay.smallest_budget(policy=name, **options) for name in names)
    if budget < program.unbudgeted_peak_bytes:  # which needs no reserve, for nothing is evicted
        smallest = min(smallest, program.unbudgeted_peak_bytes)
    failed = failure["failed_op"]
    kernel = graph.kernels[graph.ops[failed].kernel].name if failed >= 0 else None
    if failure["result"] == "thrash":
        where = "recomputation would never end"
    elif kernel is None:
        where = "parameters and inputs alone do not fit"
    else:
        source = graph.ops[failed].source
        where = f"it runs out at {kernel}" + (f", {source}" if source else "")
    raise BudgetError(
        f"the memory budget of {format_bytes(budget)} ({budget} bytes) is too small for this "
        f"program ({where}): the smallest budget that works is {format_bytes(smallest)} "
        f"({smallest} bytes)",
        op=kernel,
        budget_bytes=budget,
        short_bytes=max(smallest - budget, 0),
        needed_budget_bytes=smallest,
        holders=held_by_op(program, failed if failed >= 0 else None),
        program=program,
    )
