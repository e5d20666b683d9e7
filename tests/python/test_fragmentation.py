"""The paged arena runs where memory that is only counted does, and where a search says so."""

import numpy as np
import pytest

import tvm_dtr
from tvm_dtr import models
from tvm_dtr.cli.synthetic import synthetic_inputs
from tvm_dtr.replay import STEPS

PAGE = 4096
NAMES = ("resnet8", "mobilenet", "unet")


@pytest.fixture(scope="module", params=NAMES)
def program(request):
    return tvm_dtr.build(
        models.make(request.param, batch=4), loss="cross_entropy", optimizer=tvm_dtr.SGD(0.01)
    )


def smallest(program, arena, **options):
    return program.replay.smallest_budget(arena=arena, tolerance=PAGE, steps=STEPS, **options)


def test_where_rounded_sizes_fit_the_paged_arena_does(program):
    """No fragmentation: sizes counted as the arena rounds them need no less than the arena."""
    budget = smallest(program, "counting-rounded")
    run = program.replay.run(budget=budget, arena="paged", steps=STEPS)
    assert run["result"] == "ok"
    assert run["peak_bytes"] <= budget


def test_rounding_costs_little(program):
    """Blocks share the pages that their sizes do not fill."""
    counted = smallest(program, "counting")
    assert smallest(program, "paged") <= counted * 1.02


def test_the_machine_runs_at_the_smallest_budget(program):
    budget = smallest(program, "paged")
    inputs = synthetic_inputs(program, seed=0)
    free = tvm_dtr.VirtualMachine(program)
    vm = tvm_dtr.VirtualMachine(program, memory_budget=budget, policy="dtr-eq")
    for _ in range(3):
        expected, got = free.step(**inputs), vm.step(**inputs)
        assert {n: np.asarray(a).tobytes() for n, a in got.items()} == {
            n: np.asarray(a).tobytes() for n, a in expected.items()
        }
    assert vm.memory.peak <= budget
