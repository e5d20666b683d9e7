"""Programs under a budget: the cap holds, results are bitwise those without one."""

import json

import numpy as np
import pytest
import relay_programs as programs
import tvm
from relay_programs import PROGRAMS, assert_same, compile_module

from tvm_dtr.errors import BudgetError, ThrashError, UsageError
from tvm_dtr.vm import VirtualMachine

PAGE = 4096
FLOATS = 4 * PAGE // 4  # a tensor of 4 pages


@pytest.fixture(scope="module")
def chain():
    """x, f_1 .. f_8 and b_8 .. b_2, each tensor 4 pages."""
    module, inputs = programs.residual_chain(depth=8, size=FLOATS)
    executable = compile_module(module)
    expected = tvm.runtime.vm.VirtualMachine(executable, tvm.cpu()).invoke("main", *inputs)
    return executable, inputs, expected.numpy()


def test_peak_without_budget(chain):
    executable, inputs, expected = chain
    vm = VirtualMachine(executable)
    np.testing.assert_array_equal(vm.invoke("main", *inputs).numpy(), expected)
    counters = vm.counters()
    # x, f_1 .. f_8 and the product being made; the scalar constants share a page or are charged.
    assert counters["peak_active_bytes"] - counters["peak_active_bytes"] % PAGE == 10 * 4 * PAGE
    assert (counters["evictions"], counters["rematerializations"]) == (0, 0)


@pytest.mark.parametrize("tensors", [9, 7, 5])
@pytest.mark.parametrize("policy", ["dtr-eq", "dtr-local", "lru", "size"])
def test_budgets_hold_and_results_are_the_same(chain, tensors, policy):
    executable, inputs, expected = chain
    budget = tensors * 4 * PAGE + PAGE
    vm = VirtualMachine(executable, memory_budget=budget, policy=policy)
    np.testing.assert_array_equal(vm.invoke("main", *inputs).numpy(), expected)
    vm.validate()
    counters = vm.counters()
    assert counters["peak_mapped_bytes"] <= budget
    assert counters["evictions"] > 0
    assert counters["rematerializations"] > 0
    assert counters["calls"] == 15


def test_too_small_a_budget_names_what_is_held_and_resume_goes_on(chain):
    executable, inputs, expected = chain
    vm = VirtualMachine(executable, memory_budget=2 * 4 * PAGE)
    with pytest.raises(BudgetError) as caught:
        vm.invoke("main", *inputs)
    error = caught.value
    assert error.budget_bytes == 2 * 4 * PAGE
    assert error.needed_budget_bytes == error.budget_bytes + error.short_bytes
    assert "tanh" in error.op
    assert str(error).count("\n") == 0
    assert error.holders[0]["name"] == "x"
    assert error.holders[0]["pinned"]
    sizes = [holder["bytes"] for holder in error.holders]
    assert sizes == sorted(sizes, reverse=True)
    vm.validate()

    failures = 1
    while True:
        assert vm.set_budget(error.needed_budget_bytes) == error.budget_bytes
        try:
            result = vm.resume()
            break
        except BudgetError as next_error:
            assert next_error.needed_budget_bytes > error.needed_budget_bytes
            error = next_error
            failures += 1
            vm.validate()
    np.testing.assert_array_equal(result.numpy(), expected)
    assert vm.counters()["peak_mapped_bytes"] <= error.needed_budget_bytes
    assert failures <= 3
    with pytest.raises(Exception, match="nothing to resume"):
        vm.resume()


def test_inputs_that_do_not_fit_can_be_resumed(chain):
    executable, inputs, expected = chain
    vm = VirtualMachine(executable, memory_budget=PAGE)
    with pytest.raises(BudgetError) as caught:
        vm.invoke("main", *inputs)
    assert caught.value.needed_budget_bytes == 4 * PAGE
    vm.set_budget("1MiB")
    np.testing.assert_array_equal(vm.resume().numpy(), expected)


def test_new_invocation_drops_the_stopped_one(chain):
    executable, inputs, expected = chain
    vm = VirtualMachine(executable, memory_budget=3 * 4 * PAGE)
    with pytest.raises(BudgetError):
        vm.invoke("main", *inputs)
    vm.set_budget(None)
    np.testing.assert_array_equal(vm.invoke("main", *inputs).numpy(), expected)
    with pytest.raises(Exception, match="nothing to resume"):
        vm.resume()


def test_shrinking_below_what_is_pinned_is_refused(chain):
    executable, inputs, _ = chain
    vm = VirtualMachine(executable)
    result = vm.invoke("main", *inputs)
    held = vm.counters()["active_bytes"]
    with pytest.raises(BudgetError) as caught:
        vm.set_budget(held - 1)
    assert caught.value.needed_budget_bytes == held
    assert vm.set_budget(held) is None
    assert vm.set_budget(None) == held
    assert result.shape == (FLOATS,)


def test_thrash_guard_stops(chain):
    executable, inputs, expected = chain
    vm = VirtualMachine(executable, memory_budget=5 * 4 * PAGE + PAGE, thrash_limit=1e-6)
    with pytest.raises(ThrashError, match="thrash limit"):
        vm.invoke("main", *inputs)
    vm.validate()
    vm.set_budget(None)
    np.testing.assert_array_equal(vm.invoke("main", *inputs).numpy(), expected)


def test_bad_arguments_are_named(chain):
    executable, *_ = chain
    with pytest.raises(UsageError, match="unknown policy 'best'"):
        VirtualMachine(executable, policy="best")
    with pytest.raises(UsageError, match="'12 parsecs'"):
        VirtualMachine(executable, memory_budget="12 parsecs")
    with pytest.raises(UsageError, match="unbudgeted peak"):
        VirtualMachine(executable, memory_budget="40%")
    with pytest.raises(UsageError, match="bare executable"):
        VirtualMachine(executable).step()


def test_memory_trace_stays_under_the_budget(chain):
    executable, inputs, _ = chain
    budget = 5 * 4 * PAGE + PAGE
    vm = VirtualMachine(executable, memory_budget=budget)
    vm.trace_memory(True)
    vm.invoke("main", *inputs)
    samples = vm.memory_samples()
    vm.trace_memory(False)
    counters = vm.counters()
    assert samples[:, 1].max() == counters["peak_active_bytes"] <= budget
    assert (samples[:, 2] == budget).all()
    assert (np.diff(samples[:, 0]) >= 0).all()
    assert (samples[:, 3] == 1).sum() == counters["rematerializations"]
    assert (samples[:, 3] == 2).sum() == counters["evictions"]


@pytest.mark.parametrize("name", PROGRAMS)
def test_smallest_budget_of_every_program(name):
    """From nothing, raising the budget by what each BudgetError asks for, to the same result."""
    module, inputs = PROGRAMS[name]()
    executable = compile_module(module)
    expected = tvm.runtime.vm.VirtualMachine(executable, tvm.cpu()).invoke("main", *inputs)
    vm = VirtualMachine(executable, memory_budget=1, thrash_limit=0)
    vm.set_input("main", *inputs)

    def attempts():
        yield lambda: vm.invoke("main")
        while True:
            yield vm.resume

    budget = 1
    for attempt in attempts():
        try:
            result = attempt()
            break
        except BudgetError as error:
            assert error.needed_budget_bytes > budget
            budget = error.needed_budget_bytes
            vm.set_budget(budget)
            vm.validate()
    assert_same(result, expected)
    vm.validate()
    assert vm.counters()["peak_mapped_bytes"] <= budget


def test_costs_can_be_given(chain):
    executable, inputs, _ = chain
    vm = VirtualMachine(executable)
    kernels = vm.module["kernel_names"]().split()
    costs = np.arange(1, len(kernels) + 1, dtype="float64")
    workspace = np.zeros(len(kernels), "int64")
    vm.module["set_costs"](tvm.nd.array(costs), tvm.nd.array(workspace), 0.0)
    vm.invoke("main", *inputs)
    by_name = dict(zip(kernels, costs, strict=True))
    forward = next(cost for name, cost in by_name.items() if "tanh" in name)
    back = next(cost for name, cost in by_name.items() if "multiply" in name)
    assert json.loads(vm.module["stats"]())["compute_cost"] == 8 * forward + 7 * back


def test_closures_capture_what_can_be_evicted():
    module, inputs = programs.loop_gradient(trips=12, size=64)
    executable = compile_module(module)
    stock = tvm.runtime.vm.VirtualMachine(executable, tvm.cpu()).invoke("main", *inputs)
    # Nine tenths of the peak: closer to the limit, success depends on the costs of this run.
    budget = 18 * 4 * PAGE
    vm = VirtualMachine(executable, memory_budget=budget, thrash_limit=0)
    assert_same(vm.invoke("main", *inputs), stock)
    vm.validate()
    counters = vm.counters()
    assert counters["peak_mapped_bytes"] <= budget
    assert counters["rematerializations"] > 0
