"""Kernels' workspace comes from the arena and never exceeds what an op has reserved."""

import numpy as np
import pytest
import relay_programs as programs
import tvm
from relay_programs import compile_function, compile_module, from_file, randn
from tvm import relay

from tvm_dtr.vm import VirtualMachine


def convolution():
    """Its kernel pads the input into workspace: 1 x 8 x 18 x 18 floats."""
    x = relay.var("x", shape=(1, 8, 16, 16))
    w = relay.var("w", shape=(8, 8, 3, 3))
    y = relay.nn.conv2d(x, w, padding=(1, 1), channels=8, kernel_size=(3, 3))
    return relay.Function([x, w], y), [randn(1, 8, 16, 16), randn(8, 8, 3, 3)]


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    function, inputs = convolution()
    path = str(tmp_path_factory.mktemp("library") / "conv.so")
    executable = from_file(compile_function(function), path)
    expected = tvm.runtime.vm.VirtualMachine(executable, tvm.cpu()).invoke("main", *inputs)
    return executable, inputs, expected.numpy(), path


def set_workspace(vm, nbytes):
    count = len(vm.module["kernel_names"]().split())
    costs = tvm.nd.array(np.full(count, -1, "float64"))
    vm.module["set_costs"](costs, tvm.nd.array(np.full(count, nbytes, "int64")), 0.0)


def test_unknown_bounds_are_learned_and_counted(library):
    executable, inputs, expected, _ = library
    vm = VirtualMachine(executable)
    for _ in range(2):
        np.testing.assert_array_equal(vm.invoke("main", *inputs).numpy(), expected)
    counters = vm.counters()
    assert counters["workspace_tracked"] == 1
    assert counters["workspace_bytes"] >= 8 * 18 * 18 * 4
    page = 4096
    operands = sum(a.nbytes for a in inputs) + expected.nbytes
    assert counters["peak_active_bytes"] >= operands + counters["workspace_bytes"]
    assert counters["peak_active_bytes"] < operands + counters["workspace_bytes"] + 2 * page


def test_a_bound_too_small_is_an_error_that_names_kernel_bound_and_need(library):
    executable, inputs, expected, _ = library
    vm = VirtualMachine(executable)
    set_workspace(vm, 64)
    with pytest.raises(Exception, match=r"conv2d.* needs \d+ bytes of workspace, but 64 were"):
        vm.invoke("main", *inputs)
    vm.validate()
    set_workspace(vm, 1 << 16)
    np.testing.assert_array_equal(vm.invoke("main", *inputs).numpy(), expected)
    assert vm.counters()["workspace_bytes"] == 1 << 16


def test_measured_need_is_just_enough(library):
    executable, inputs, expected, path = library
    measure = tvm.get_global_func("tvm_dtr.measure_workspace")
    stock = tvm.runtime.vm.VirtualMachine(executable, tvm.cpu())
    measure(path, "begin")
    stock.invoke("main", *inputs)
    need = measure(path, "end")
    assert need >= 8 * 18 * 18 * 4
    vm = VirtualMachine(executable)
    set_workspace(vm, need)
    np.testing.assert_array_equal(vm.invoke("main", *inputs).numpy(), expected)
    set_workspace(vm, need - 4096)  # blocks are whole pages
    with pytest.raises(Exception, match=f"needs {need} bytes"):
        vm.invoke("main", *inputs)


def test_stock_vm_on_the_same_library_is_undisturbed(library):
    executable, inputs, expected, path = library
    ours = VirtualMachine(executable)
    stock = tvm.runtime.vm.VirtualMachine(executable, tvm.cpu())
    for _ in range(3):
        np.testing.assert_array_equal(ours.invoke("main", *inputs).numpy(), expected)
        np.testing.assert_array_equal(stock.invoke("main", *inputs).numpy(), expected)
    tvm.runtime.load_module(path)  # makes TVM set the library's variables again
    set_workspace(ours, 64)
    with pytest.raises(Exception, match="bytes of workspace"):
        ours.invoke("main", *inputs)


def test_kernels_in_memory_are_reported_as_untracked():
    module, _ = programs.straight_line()
    vm = VirtualMachine(compile_module(module))
    assert vm.counters()["workspace_tracked"] == 0


def test_budget_counts_workspace(library):
    from tvm_dtr.errors import BudgetError

    executable, inputs, expected, _ = library
    free = VirtualMachine(executable)
    free.invoke("main", *inputs)
    peak = free.counters()["peak_active_bytes"]
    vm = VirtualMachine(executable, memory_budget=peak - 4096)
    with pytest.raises(BudgetError) as caught:
        vm.invoke("main", *inputs)
    assert caught.value.needed_budget_bytes == peak
    vm.set_budget(peak)
    np.testing.assert_array_equal(vm.resume().numpy(), expected)
