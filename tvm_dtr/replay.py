"""A program's step on the runtime without its kernels: what a budget will do is known before."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import _core
from .errors import BudgetError

if TYPE_CHECKING:
    from .program import Program

# From step to step small state tensors come to share slabs with what has been freed since, which a
# replay of one step does not see: at most a slab of 16 KiB for each of the arena's six classes.
_SLAB_MARGIN_BYTES = 6 * 16384
_CODES = {"op": 0, "view": 1, "kill": 2, "const": 3}


def replay_of(graph: Any) -> _core.Replay:
    """The replay of an OpGraph: ``run(budget=...)``, ``smallest_budget()``."""
    return _core.Replay(
        kernels=[(kernel.cost_ns, kernel.workspace_bytes) for kernel in graph.kernels],
        storages=list(graph.storages),
        tensors=[(tensor.storage, tensor.base) for tensor in graph.tensors],
        ops=[(op.kernel, list(op.inputs), list(op.outputs)) for op in graph.ops],
        pinned=list(graph.parameters),
        results=list(graph.results),
        instructions=[(_CODES[kind], index) for kind, index in graph.instructions],
    )


def check_budget(
    program: Program, budget: int, policy: str, seed: int, thrash_limit: float
) -> None:
    """Refuses a budget under which the step would run out of memory.

    Raises:
        BudgetError: with ``needed_budget_bytes``, the smallest budget that works for this policy.
    """
    replay, graph = program.replay, program.graph
    options: dict[str, Any] = {"policy": policy, "seed": seed, "thrash_limit": thrash_limit}
    result = replay.run(budget=budget, **options)
    if result["result"] != "oom":
        return
    smallest = replay.smallest_budget(**options) + _SLAB_MARGIN_BYTES
    failed = result["failed_op"]
    kernel = graph.kernels[graph.ops[failed].kernel].name if failed >= 0 else None
    raise BudgetError(
        f"the memory budget of {budget} bytes is too small for this program"
        + (f" (it runs out at {kernel})" if kernel else "")
        + f": the smallest budget that works with {policy} is {smallest} bytes",
        op=kernel,
        budget_bytes=budget,
        short_bytes=smallest - budget,
        needed_budget_bytes=smallest,
    )
