"""What goes in and comes out: no copies, exact lifetimes, memory that outlives the VM."""

import gc
import threading

import numpy as np
import pytest
import relay_programs as programs
import tvm
from relay_programs import assert_same, compile_module
from tvm import relay

from tvm_dtr.errors import UsageError
from tvm_dtr.vm import VirtualMachine

PAGE = 4096


def square(size):
    """x -> x * x, one kernel."""
    x = relay.var("x", shape=(size,), dtype="float32")
    return compile_module(tvm.IRModule.from_expr(relay.Function([x], x * x)))


def address(array):
    return array.handle.contents.data


def test_lifetimes_are_exact():
    module, inputs = programs.residual_chain(depth=8, size=PAGE)
    vm = VirtualMachine(compile_module(module))
    result = vm.invoke("main", *inputs)
    counters = vm.counters()
    assert counters["calls"] == 15
    # f_1 .. f_8 and b_8 .. b_3; f_8 and the products are read once, the others twice.
    assert counters["eager_evictions"] == 14
    assert (counters["live_ops"], counters["live_outputs"]) == (0, 1)
    before = counters["live_tensors"]
    del result
    vm.module["clear"]()
    counters = vm.counters()
    assert counters["live_outputs"] == 0
    assert before - counters["live_tensors"] == 2  # the output and x
    assert counters["pinned_bytes"] == counters["active_bytes"]


def test_output_outlives_the_vm():
    vm = VirtualMachine(square(PAGE))
    x = np.arange(PAGE, dtype="float32")
    result = vm.invoke("main", x)
    del vm
    gc.collect()
    np.testing.assert_array_equal(result.numpy(), x * x)


def test_outputs_dropped_on_other_threads():
    vm = VirtualMachine(square(PAGE))
    x = np.arange(PAGE, dtype="float32")
    outputs = [vm.invoke("main", x) for _ in range(64)]
    vm.module["clear"]()
    assert vm.counters()["live_outputs"] == 64

    def drop():
        while True:
            try:
                outputs.pop()
            except IndexError:
                return

    threads = [threading.Thread(target=drop) for _ in range(2)]
    for thread in threads:
        thread.start()
    for _ in range(20):
        vm.invoke("main", x)
    for thread in threads:
        thread.join()
    vm.module["clear"]()
    counters = vm.counters()
    vm.validate()
    assert (counters["live_outputs"], counters["active_bytes"]) == (0, 0)


def test_output_comes_back_without_a_copy_and_is_counted_once():
    vm = VirtualMachine(square(PAGE))
    x = np.linspace(0.5, 1, PAGE, dtype="float32")
    first = vm.invoke("main", x)
    second = vm.invoke("main", first)
    counters = vm.counters()
    # `first` (as input and for its owner) and `second`.
    assert counters["active_bytes"] == 2 * 4 * PAGE
    assert counters["live_outputs"] == 2
    del first
    vm.module["clear"]()
    assert vm.counters()["active_bytes"] == 4 * PAGE
    np.testing.assert_array_equal(second.numpy(), x * x * (x * x))
    vm.validate()


def test_view_of_an_output_comes_back_without_a_copy():
    vm = VirtualMachine(square(PAGE))
    x = np.linspace(0.5, 1, PAGE, dtype="float32")
    matrix = vm.invoke("main", x)._create_view([2, PAGE // 2])
    flat = matrix._create_view([PAGE])
    vm.module["clear"]()
    vm.set_input("main", flat)
    vm.invoke("main")
    assert vm.counters()["active_bytes"] == 2 * 4 * PAGE


def test_callers_arrays_are_used_without_a_copy_and_charged():
    vm = VirtualMachine(square(PAGE))
    x = tvm.nd.array(np.ones(PAGE, "float32"))
    vm.set_input("main", x)
    assert vm.counters()["active_bytes"] == 0
    vm.invoke("main")
    assert vm.counters()["active_bytes"] == 2 * 4 * PAGE
    vm.invoke("main")
    assert vm.counters()["active_bytes"] == 2 * 4 * PAGE


def test_input_returned_as_it_is():
    x = relay.var("x", shape=(PAGE,), dtype="float32")
    vm = VirtualMachine(compile_module(tvm.IRModule.from_expr(relay.Function([x], x))))
    given = tvm.nd.array(np.ones(PAGE, "float32"))
    assert address(vm.invoke("main", given)) == address(given)


def test_same_tensor_twice_is_the_same_memory():
    x = relay.var("x", shape=(PAGE,), dtype="float32")
    y = relay.exp(x)
    body = relay.Let(v := relay.var("v"), y, relay.Tuple([v, relay.reshape(v, (2, -1)), v]))
    vm = VirtualMachine(compile_module(tvm.IRModule.from_expr(relay.Function([x], body))))
    result = vm.invoke("main", np.zeros(PAGE, "float32"))
    assert len({address(result[i]) for i in range(3)}) == 1
    assert result[1].shape == (2, PAGE // 2)
    assert vm.counters()["active_bytes"] == 2 * 4 * PAGE
    vm.validate()


def test_module_functions_of_the_stock_vm():
    module, inputs = programs.tuples()
    executable = compile_module(module)
    stock = tvm.runtime.vm.VirtualMachine(executable, tvm.cpu())
    ours = VirtualMachine(executable, tvm.cpu())
    for vm in (stock, ours):
        vm.set_one_input("main", 0, tvm.nd.array(np.zeros((6, 4), "float32")))
        vm.invoke_stateful("main")
        vm.set_one_input("main", x=tvm.nd.array(inputs[0]))
        vm.invoke_stateful("main")
    assert ours.get_input_index("x") == stock.get_input_index("x") == 0
    assert ours.get_input_index("y") == -1
    assert ours._get_num_outputs() == stock._get_num_outputs() == 2
    assert_same(ours._get_output(0), stock._get_output(0))
    by_name = [vm.invoke("main", x=inputs[0]) for vm in (stock, ours)]
    assert_same(*by_name)
    assert_same(stock.run(*inputs), ours.run(*inputs))


def test_return_to_device():
    module, inputs = programs.straight_line()
    vm = VirtualMachine(compile_module(module))
    expected = vm.invoke("main", *inputs).numpy()
    arrays = [tvm.nd.array(i) for i in inputs]
    result = vm.module["invoke_return_to_device"]("main", 1, 0, *arrays)
    np.testing.assert_array_equal(result.numpy(), expected)


@pytest.mark.parametrize("name", ["straight_line", "reshape"])
def test_given_output_tensors_are_filled(name):
    module, inputs = programs.PROGRAMS[name]()
    vm = VirtualMachine(compile_module(module))
    expected = vm.invoke("main", *inputs)
    fields = [expected] if isinstance(expected, tvm.nd.NDArray) else list(expected)
    given = [tvm.nd.empty(field.shape, field.dtype) for field in fields]
    names = [var.name_hint for var in module["main"].params]
    vm.invoke_with_outputs("main", dict(zip(names, inputs, strict=True)), given)
    for array, field in zip(given, fields, strict=True):
        np.testing.assert_array_equal(array.numpy(), field.numpy())
    again = vm.invoke("main")  # given outputs hold for one invocation
    for array, field in zip(given, fields, strict=True):
        array.copyfrom(np.zeros_like(field.numpy()))
    assert_same(again, expected)


def test_benchmark_runs():
    module, inputs = programs.straight_line()
    vm = VirtualMachine(compile_module(module))
    result = vm.benchmark(tvm.cpu(), *inputs, repeat=2, number=3)
    assert len(result.results) == 2
    assert min(result.results) > 0
    end_to_end = vm.benchmark(
        tvm.cpu(), *map(tvm.nd.array, inputs), repeat=2, number=3, end_to_end=True
    )
    assert len(end_to_end.results) == 2


def test_missing_inputs_are_named():
    vm = VirtualMachine(square(16))
    with pytest.raises(UsageError, match="the inputs of function 'main' are not set"):
        vm.invoke("main")


def test_a_thousand_invocations_leave_nothing_behind():
    module, inputs = programs.residual_chain(depth=4, size=256)
    vm = VirtualMachine(compile_module(module), memory_budget="1MiB")
    state = vm.invoke("main", *inputs)
    seen = set()
    for _ in range(1000):
        state = vm.invoke("main", state)
        counters = vm.counters()
        names = ("live_storages", "live_tensors", "live_ops", "live_outputs", "active_bytes")
        seen.add(tuple(counters[name] for name in names))
    assert len(seen) == 1
    vm.validate()


def test_two_vms_and_outputs_across():
    executable = square(PAGE)
    a, b = VirtualMachine(executable), VirtualMachine(executable)
    x = np.linspace(0.5, 1, PAGE, dtype="float32")
    y = b.invoke("main", a.invoke("main", x))
    del a
    gc.collect()
    np.testing.assert_array_equal(y.numpy(), x * x * (x * x))
    b.module["clear"]()
    b.validate()


def test_input_written_again_in_place_is_seen():
    vm = VirtualMachine(square(PAGE))
    x = tvm.nd.array(np.full(PAGE, 2, "float32"))
    vm.set_input("main", x)
    assert vm.invoke("main").numpy()[0] == 4
    x.copyfrom(np.full(PAGE, 3, "float32"))
    assert vm.invoke("main").numpy()[0] == 9


def test_misaligned_input_is_copied_each_time():
    vm = VirtualMachine(square(8))
    whole = tvm.nd.array(np.full(16, 2, "float32"))
    vm.set_input("main", whole._create_view([8], "float32", relative_byte_offset=4))
    assert vm.invoke("main").numpy()[0] == 4
    whole.copyfrom(np.full(16, 3, "float32"))
    np.testing.assert_array_equal(vm.invoke("main").numpy(), np.full(8, 9, "float32"))
    vm.validate()
