"""vm.memory, the choice of an arena, and budgets that change between and within steps."""

import gc
import threading

import numpy as np
import pytest
import relay_programs as programs
from relay_programs import assert_same, compile_module

from tvm_dtr import _core
from tvm_dtr.errors import BudgetError, UsageError
from tvm_dtr.replay import arena_for
from tvm_dtr.vm import VirtualMachine

PAGE = 4096
TENSOR = 4 * PAGE
DEPTH = 8
SHIFT = 2 * PAGE  # scalars of the program and of the arena's shared pages


@pytest.fixture(scope="module")
def chain(tmp_path_factory):
    """x, f_1 .. f_8 and b_8 .. b_2, each tensor 4 pages; kernels in a file."""
    module, inputs = programs.residual_chain(depth=DEPTH, size=TENSOR // 4)
    path = tmp_path_factory.mktemp("chain") / "chain.so"
    executable = programs.from_file(compile_module(module), str(path))
    return executable, inputs, VirtualMachine(executable).invoke("main", *inputs).numpy()


@pytest.mark.parametrize(
    ("arena", "policy"), [("paged", "dtr-eq"), ("best-fit", "dtr-eq"), ("best-fit", "window")]
)
@pytest.mark.parametrize("tensors", [9, 7, 6])
def test_each_arena_gives_the_same_bits_within_the_budget(chain, arena, policy, tensors):
    executable, inputs, expected = chain
    budget = tensors * TENSOR + SHIFT
    vm = VirtualMachine(executable, memory_budget=budget, policy=policy, arena=arena)
    for _ in range(3):
        assert vm.invoke("main", *inputs).numpy().tobytes() == expected.tobytes()
        vm.validate()
    assert vm.counters()["rematerializations"] > 0
    assert vm.memory.peak <= budget == vm.memory.budget


def test_figures_are_in_order_and_the_peak_is_reset(chain):
    executable, inputs, _ = chain
    vm = VirtualMachine(executable, memory_budget=7 * TENSOR)
    assert (vm.memory.active, vm.memory.budget) == (0, 7 * TENSOR)
    output = vm.invoke("main", *inputs)
    memory = vm.memory
    assert TENSOR <= memory.active <= memory.reserved <= memory.peak <= memory.budget
    assert "budget=112.0 KiB" in repr(memory)
    memory.reset_peak()
    assert memory.peak == memory.reserved
    del output
    vm.module["clear"]()
    gc.collect()
    assert vm.memory.active < TENSOR
    assert VirtualMachine(executable).memory.budget is None


def test_set_budget_returns_the_old_one_and_evicts_at_once(chain):
    executable, inputs, expected = chain
    vm = VirtualMachine(executable, memory_budget=20 * TENSOR)
    output = vm.invoke("main", *inputs)
    assert vm.memory.reserved > 4 * TENSOR
    assert vm.memory.set_budget(4 * TENSOR) == 20 * TENSOR
    assert vm.memory.reserved <= 4 * TENSOR
    np.testing.assert_array_equal(output.numpy(), expected)
    held = vm.memory.active
    with pytest.raises(BudgetError, match="nothing is left to evict"):
        vm.memory.set_budget(held - 1)
    assert vm.memory.budget == 4 * TENSOR
    vm.validate()
    assert vm.memory.set_budget(None) == 4 * TENSOR
    assert_same(vm.invoke("main", *inputs), output)


@pytest.mark.parametrize("arena", _core.arenas())
def test_budget_changes_between_and_within_steps(chain, arena):
    """Every step stops for want of memory, shrinks further, grows again and goes on."""
    executable, inputs, expected = chain
    vm = VirtualMachine(executable, memory_budget=3 * TENSOR, arena=arena)
    for round_ in range(6):
        vm.set_budget(3 * TENSOR)
        with pytest.raises(BudgetError):
            vm.invoke("main", *inputs)
        vm.set_budget(vm.memory.active)
        vm.validate()
        vm.set_budget((6 + round_) * TENSOR + SHIFT)
        result = vm.resume()
        assert result.numpy().tobytes() == expected.tobytes()
        assert vm.memory.peak <= vm.memory.budget
        del result
        vm.module["clear"]()


@pytest.mark.parametrize("arena", _core.arenas())
def test_outputs_kept_over_many_steps(chain, arena):
    """100 outputs stay as they were, outlive the VM, and count until they go."""
    executable, inputs, expected = chain
    vm = VirtualMachine(executable, memory_budget=(100 + 7) * TENSOR, arena=arena)
    kept = [vm.invoke("main", *inputs) for _ in range(100)]
    vm.module["clear"]()
    assert vm.counters()["live_outputs"] == 100
    assert 100 * TENSOR <= vm.memory.active <= vm.memory.budget
    del vm
    gc.collect()
    for output in kept:
        assert output.numpy().tobytes() == expected.tobytes()


def test_two_machines_in_two_threads(chain):
    """The same kernels at the same time, each with its own arena and budget."""
    executable, inputs, expected = chain
    failures = []

    def train(tensors, arena):
        try:
            vm = VirtualMachine(executable, memory_budget=tensors * TENSOR + SHIFT, arena=arena)
            for _ in range(50):
                assert vm.invoke("main", *inputs).numpy().tobytes() == expected.tobytes()
            assert vm.memory.peak <= vm.memory.budget
            vm.validate()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=train, args=a) for a in ((6, "paged"), (7, "best-fit"))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_arenas_by_name(chain):
    assert arena_for("auto", None) == "paged"
    assert arena_for("window", None) == "best-fit"
    assert VirtualMachine(chain[0], policy="window").arena == "best-fit"
    with pytest.raises(UsageError, match="unknown arena 'buddy': use one of paged, best-fit"):
        VirtualMachine(chain[0], arena="buddy")
    with pytest.raises(UsageError, match="use the arena best-fit"):
        VirtualMachine(chain[0], policy="window", arena="paged")
