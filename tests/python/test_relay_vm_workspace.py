"""Kernels' workspace comes from the arena and never exceeds what an op has reserved."""

import numpy as np
import pytest
import relay_programs as programs
import tvm
from relay_programs import compile_function, compile_module, from_file, randn
from tvm import relay

from tvm_dtr.errors import BudgetError, UsageError
from tvm_dtr.plugin import load_plugin
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


@pytest.mark.parametrize("when", ["from the start", "later"])
def test_a_budget_moves_kernels_in_memory_to_a_library(when, library):
    _, inputs, expected, _ = library
    executable = compile_function(convolution()[0])
    vm = VirtualMachine(executable, memory_budget="1MiB" if when == "from the start" else None)
    if when == "later":
        np.testing.assert_array_equal(vm.invoke("main", *inputs).numpy(), expected)
        assert vm.counters()["workspace_bytes"] == 0
        vm.set_budget("1MiB")
    np.testing.assert_array_equal(vm.invoke("main", *inputs).numpy(), expected)
    counters = vm.counters()
    assert counters["workspace_tracked"] == 1
    assert counters["workspace_bytes"] >= 8 * 18 * 18 * 4
    operands = sum(a.nbytes for a in inputs) + expected.nbytes
    with pytest.raises(BudgetError):
        VirtualMachine(executable, memory_budget=operands + 4096).invoke("main", *inputs)


@pytest.mark.parametrize("compiler", [None, "/bin/false"])
def test_a_budget_that_cannot_hold_is_refused(compiler, library, monkeypatch):
    _, inputs, expected, _ = library
    executable = compile_function(convolution()[0])
    for name in ("CXX", "CC"):
        monkeypatch.delenv(name, raising=False)
    if compiler:
        monkeypatch.setenv("CXX", compiler)
    else:
        monkeypatch.setenv("PATH", "/nonexistent")
    message = r"^a memory budget needs the kernels in a shared library[^\n]*install a C\+\+ [^\n]*$"
    with pytest.raises(UsageError, match=message):
        VirtualMachine(executable, memory_budget="1MiB")
    vm = VirtualMachine(executable)
    with pytest.raises(UsageError, match=message):
        vm.set_budget("1MiB")
    with pytest.raises(UsageError, match="a memory budget needs"):
        vm._call("set_budget", 1 << 20)  # nor does the module take it
    np.testing.assert_array_equal(vm.invoke("main", *inputs).numpy(), expected)


def test_budget_counts_workspace(library):
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


def scratch_kernel(path, outer, inner):
    """A library with f(A): `outer` buffers of 2 KiB, then `inner` more in each turn of a parallel
    loop of four; each is written and summed into A."""
    builder = tvm.tir.ir_builder.create()
    a = tvm.tir.decl_buffer((4,), "float32", name="A")
    out = builder.buffer_ptr(a)

    def fill(count, name, at):
        at = tvm.tir.convert(at)
        for k in range(count):
            scratch = builder.allocate("float32", 512, name=f"{name}{k}")
            with builder.for_range(0, 512, name="j") as j:
                scratch[j] = tvm.tir.Cast("float32", at + j)
            with builder.for_range(0, 512, name="s") as s:
                out[at] = out[at] + scratch[s]

    fill(outer, "outer", 0)
    with builder.for_range(0, 4, name="i", kind="parallel") as i:
        fill(inner, "inner", i)
    function = tvm.tir.PrimFunc([a], builder.get()).with_attr("global_symbol", "f")
    # Storage rewrite would let the buffers share memory.
    options = {"tir.disable_storage_rewrite": True}
    with tvm.transform.PassContext(opt_level=0, config=options):
        tvm.build(tvm.IRModule({"f": function}), target="llvm").export_library(path)
    return tvm.runtime.load_module(path)


@pytest.mark.parametrize("outer, inner", [(1, 0), (70, 0), (0, 3), (2, 70)])
def test_measured_need_counts_every_task(tmp_path, outer, inner):
    path = str(tmp_path / "scratch.so")
    module = scratch_kernel(path, outer, inner)
    load_plugin()
    measure = tvm.get_global_func("tvm_dtr.measure_workspace")
    measure(path, "begin")
    module["f"](tvm.nd.array(np.zeros(4, "float32")))
    threads = tvm.runtime.num_threads()
    assert measure(path, "end") == 2048 * (outer + inner * min(threads, 4))
