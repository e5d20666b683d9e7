"""The paged arena runs where memory that is only counted does, and where a search says so."""

import numpy as np
import pytest

import tvm_dtr
from tvm_dtr import models
from tvm_dtr.cli.synthetic import synthetic_inputs
from tvm_dtr.errors import BudgetError
from tvm_dtr.replay import STEPS

PAGE = 4096


@pytest.fixture(scope="module", params=("resnet8", "mobilenet", "unet"))
def program(request):
    return tvm_dtr.build(
        models.make(request.param, batch=4), loss="cross_entropy", optimizer=tvm_dtr.SGD(0.01)
    )


def smallest(program, arena):
    return program.replay.smallest_budget(arena=arena, tolerance=PAGE, steps=STEPS)


def test_rounding_costs_little(program):
    """Blocks share the pages that their sizes do not fill: a hundredth of what is counted to the
    byte at most, and no more than without fragmentation. U-Net has budgets between those that work
    at which it runs out of memory, so that is asked of the smallest, not of each."""
    counted = smallest(program, "counting")
    paged = smallest(program, "paged")
    assert paged <= counted * 1.01
    assert paged <= smallest(program, "counting-rounded") + PAGE
    run = program.replay.run(budget=paged, arena="paged", steps=STEPS)
    assert run["result"] == "ok"
    assert run["peak_bytes"] <= paged


def test_the_machine_runs_at_the_smallest_budget(program):
    check_steps(program, smallest(program, "paged"))


def test_the_machine_runs_at_the_budget_that_a_refusal_names(program):
    with pytest.raises(BudgetError) as caught:
        tvm_dtr.VirtualMachine(program, memory_budget=1, policy="dtr-eq")
    check_steps(program, caught.value.needed_budget_bytes)


def check_steps(program, budget):
    inputs = synthetic_inputs(program, seed=0)
    free = tvm_dtr.VirtualMachine(program)
    vm = tvm_dtr.VirtualMachine(program, memory_budget=budget, policy="dtr-eq")
    for _ in range(4):
        expected, got = free.step(**inputs), vm.step(**inputs)
        assert {n: np.asarray(a).tobytes() for n, a in got.items()} == {
            n: np.asarray(a).tobytes() for n, a in expected.items()
        }
    assert vm.memory.peak <= budget
