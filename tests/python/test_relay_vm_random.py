"""Random programs, random budgets: bitwise the stock VM's results, invariants at every stop."""

import numpy as np
import pytest
import tvm
from relay_programs import assert_same, compile_module, random_program

from tvm_dtr.errors import BudgetError
from tvm_dtr.vm import VirtualMachine

POLICIES = ("dtr-eq", "dtr", "dtr-local", "lru", "size", "random")
MORE = 16384


def run_raising_the_budget(vm, inputs, rng):
    """Invokes and resumes, with a little more memory after each BudgetError."""
    vm.set_input("main", *inputs)
    resume = False
    for _ in range(1000):
        try:
            return vm.resume() if resume else vm.invoke("main")
        except BudgetError as error:
            vm.validate()
            vm.set_budget(error.needed_budget_bytes + int(rng.integers(0, MORE)))
            resume = True
    raise AssertionError("the budgets that errors ask for never suffice")


@pytest.mark.parametrize("seed", range(12))
def test_random_programs(seed):
    module, inputs = random_program(seed)
    executable = compile_module(module)
    expected = tvm.runtime.vm.VirtualMachine(executable, tvm.cpu()).invoke("main", *inputs)
    rng = np.random.default_rng(seed)
    policy = POLICIES[seed % len(POLICIES)]
    vm = VirtualMachine(executable, memory_budget=1, policy=policy, thrash_limit=0)
    evictions = 0
    for _ in range(3):
        result = run_raising_the_budget(vm, inputs, rng)
        assert_same(result, expected)
        vm.validate()
        counters = vm.counters()
        assert counters["peak_mapped_bytes"] <= counters["budget_bytes"]
        assert counters["live_ops"] == 0
        evictions += counters["evictions"]
        del result
        vm.module["clear"]()
        # What stays is the constants; the next round starts from less than it needs.
        vm.set_budget(max(vm.counters()["active_bytes"], 1))
        vm.reset_stats()
    assert evictions > 0
    assert vm.counters()["live_outputs"] == 0
