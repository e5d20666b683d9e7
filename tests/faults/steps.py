"""Faults of a training step: budgets that are refused, costs that are none."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import tvm
from outcome import Outcome

import tvm_dtr
from tvm_dtr import _core
from tvm_dtr.errors import BudgetError
from tvm_dtr.models.mlp import mlp

BATCH, FEATURES = 2048, 6
BITWISE = "same bits, budget held, invariants hold, nothing left behind"


@functools.cache
def program() -> tvm_dtr.Program:
    """A step whose activations outweigh its parameters."""
    model = mlp(batch=BATCH, seed=0, features=FEATURES, width=32, hidden_layers=6, classes=3)
    return tvm_dtr.build(model, loss="cross_entropy", optimizer=tvm_dtr.SGD(lr=0.1))


def inputs(step: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(step)
    x = rng.normal(size=(BATCH, FEATURES)).astype("float32")
    return {"x": x, "labels": rng.integers(0, 3, BATCH)}


def state_after(vm: Any, steps: int = 3) -> list[bytes]:
    losses = [vm.step(**inputs(step))["loss"].tobytes() for step in range(steps)]
    return losses + [array.tobytes() for array in vm.parameters.values()]


@functools.cache
def expected() -> list[bytes]:
    return state_after(tvm_dtr.VirtualMachine(program()))


@functools.cache
def tight() -> int:
    """A budget under which a step evicts, whatever the policy."""
    smallest = program().replay.smallest_budget(thrash_limit=0)
    return (smallest + program().unbudgeted_peak_bytes) // 2


def check(vm: Any, found: list[bytes]) -> None:
    """That nothing was lost and nothing is wrong."""
    vm.validate()
    counters = vm.counters()
    assert found == expected(), "other bits"
    assert counters["peak_mapped_bytes"] <= counters["budget_bytes"], "over the budget"
    assert counters["live_ops"] == 0, "records were left behind"


def budgets(folder: Path) -> Iterator[Outcome]:
    """A budget that suddenly is too small, at every share of what a step needs."""
    raised = 0
    for percent in range(30, 100, 5):
        vm = tvm_dtr.VirtualMachine(program())
        found = [vm.step(**inputs(0))["loss"].tobytes()]
        pinned = vm.counters()["pinned_bytes"]
        budget = max(pinned + 4096, tight() * percent // 100)
        vm.set_budget(budget)
        for step in (1, 2):
            found.append(_with_more(vm, step))
        raised += vm.counters()["budget_bytes"] > budget
        vm.validate()
        found += [array.tobytes() for array in vm.parameters.values()]
        assert found == expected(), "other bits"
        assert vm.counters()["live_ops"] == 0
    assert raised
    yield Outcome(
        "no memory within the budget",
        "a step, at whichever allocation",
        14,
        "`BudgetError`, which names a budget that passes",
        "resumed with it: " + BITWISE,
    )
    with_pinned = tvm_dtr.VirtualMachine(program())
    try:
        with_pinned.set_budget(4096)
    except BudgetError:
        pass
    else:
        raise AssertionError("a budget below what is pinned was taken")
    assert state_after(with_pinned) == expected()
    yield Outcome(
        "a budget below what is pinned",
        "between two steps",
        1,
        "`BudgetError`",
        "the old budget stays: same bits",
    )


def _with_more(vm: Any, step: int) -> bytes:
    """The loss of a step that is resumed with what each refusal asks for."""
    try:
        return vm.step(**inputs(step))["loss"].tobytes()
    except BudgetError as error:
        for _ in range(100):
            vm.validate()
            vm.set_budget(error.needed_budget_bytes)
            try:
                return vm.resume()["loss"].tobytes()
            except BudgetError as again:
                error = again
    raise AssertionError("the budgets that refusals ask for never suffice")


COSTS = {
    "zero": 0.0,
    "infinite": math.inf,
    "no number (NaN)": math.nan,
    "the largest number": 1.7e308,
    "the smallest number": 5e-324,
}


def cost_table(cost: float) -> tuple[Any, Any, float]:
    """Arguments of set_costs: the same cost for each kernel, negative: it is to be measured."""
    workspace = [kernel.workspace_bytes for kernel in program().graph.kernels]
    costs = tvm.nd.array(np.full(len(workspace), cost))
    return costs, tvm.nd.array(np.array(workspace, "int64")), 0.0


def costs(folder: Path) -> Iterator[Outcome]:
    """A table of costs that are none, under every policy: decisions may be poor, never wrong."""
    policies = sorted(_core.policies())
    for name, cost in COSTS.items():
        for policy in policies:
            vm = tvm_dtr.VirtualMachine(
                program(), memory_budget=tight(), policy=policy, thrash_limit=0
            )
            vm.module["set_costs"](*cost_table(cost))
            check(vm, state_after(vm))
            assert vm.stats["evictions"] > 0, "nothing was decided"
        yield Outcome(
            f"costs: {name}",
            "choosing what to evict, every policy",
            len(policies),
            "nothing",
            BITWISE,
        )
