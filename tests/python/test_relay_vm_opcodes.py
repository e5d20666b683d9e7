"""Every opcode of the Relay VM, bit by bit like the stock VM."""

import numpy as np
import pytest
import relay_programs as programs
import tvm
from relay_programs import PROGRAMS, assert_same, compile_module
from tvm import relay

from tvm_dtr.errors import UsageError
from tvm_dtr.vm import VirtualMachine

# The opcode as its number in the bytecode, and a program whose code has it.
OPCODES = {
    "Move": (0, "loop"),
    "Ret": (1, "loop"),
    "Invoke": (2, "loop"),
    "InvokeClosure": (3, "closures"),
    "InvokePacked": (4, "straight_line"),
    "AllocTensor": (5, "straight_line"),
    "AllocTensorReg": (6, "dynamic"),
    "AllocADT": (7, "tuples"),
    "AllocClosure": (8, "closures"),
    "GetField": (9, "lists"),
    "If": (10, "branches"),
    "LoadConst": (11, "constants"),
    "Goto": (12, "branches"),
    "GetTag": (13, "lists"),
    "LoadConsti": (14, "branches"),
    "AllocStorage": (16, "straight_line"),
    "ShapeOf": (17, "dynamic"),
    "ReshapeTensor": (18, "reshape"),
    "KillRegister": (20, "straight_line"),
}


def opcodes_of(executable):
    return {
        int(line.split(":")[1].split()[0])
        for line in executable.bytecode.splitlines()
        if "  # " in line and ":" in line
    }


@pytest.fixture(scope="module")
def compiled():
    cache = {}

    def get(name):
        if name not in cache:
            module, inputs = PROGRAMS[name]()
            cache[name] = compile_module(module), inputs
        return cache[name]

    return get


@pytest.mark.parametrize("name", PROGRAMS)
def test_equals_stock_vm(compiled, name):
    executable, inputs = compiled(name)
    expected = tvm.runtime.vm.VirtualMachine(executable, tvm.cpu()).invoke("main", *inputs)
    vm = VirtualMachine(executable)
    for _ in range(2):
        assert_same(vm.invoke("main", *inputs), expected)
        vm.validate()


@pytest.mark.parametrize("name", OPCODES)
def test_programs_have_the_opcode(compiled, name):
    number, program = OPCODES[name]
    assert number in opcodes_of(compiled(program)[0])


@pytest.mark.parametrize("sign", [1, -1])
def test_both_branches(compiled, sign):
    for name in ("branches", "closures"):
        executable, _ = compiled(name)
        x = np.full(8 if name == "branches" else 5, sign, "float32")
        expected = tvm.runtime.vm.VirtualMachine(executable, tvm.cpu()).invoke("main", x)
        assert_same(VirtualMachine(executable).invoke("main", x), expected)


def test_fatal_stops_with_a_message_and_leaves_the_vm_usable():
    module, missing = programs.optional(present=False)
    executable = compile_module(module)
    assert 15 in opcodes_of(executable)
    vm = VirtualMachine(executable)
    with pytest.raises(Exception, match="no clause of a match fits"):
        vm.invoke("main", *missing)
    vm.validate()
    _, present = programs.optional(present=True)
    np.testing.assert_array_equal(vm.invoke("main", *present).numpy(), np.full(3, 2, "float32"))


def test_recursion_is_bounded_by_memory_only():
    module, inputs = programs.loop(trips=100_000)
    vm = VirtualMachine(compile_module(module))
    shallow = programs.loop(trips=7)[1]
    assert vm.invoke("main", *inputs).shape == (4, 4)
    # tanh(x x^T) has long converged or not; what counts is that frames are given back.
    assert vm.invoke("main", *shallow).shape == (4, 4)
    assert vm.counters()["live_ops"] == 0


def test_closure_comes_out_with_arrays():
    module, inputs = programs.returns_closure()
    vm = VirtualMachine(compile_module(module))
    result = vm.invoke("main", *inputs)
    np.testing.assert_array_equal(result[1].numpy(), inputs[0])
    counters = vm.counters()
    del result, vm
    assert counters["live_ops"] == 0


def test_dynamic_shapes_change_between_invocations(compiled):
    executable, _ = compiled("dynamic")
    stock = tvm.runtime.vm.VirtualMachine(executable, tvm.cpu())
    vm = VirtualMachine(executable)
    for rows in (1, 5, 2, 40):
        x = programs.randn(rows, 4)
        assert_same(vm.invoke("main", x), stock.invoke("main", x))
    vm.validate()


def test_other_devices_are_refused():
    module, _ = programs.straight_line()
    vm = VirtualMachine(compile_module(module), device=[tvm.cpu()])
    with pytest.raises(Exception, match="Unable to find a physical device"):
        vm.module["init"](2, 0, 2)


def serialized(opcode, fields):
    """An instruction as TVM saves it: length, hash, opcode, fields."""
    key = opcode
    for value in fields:
        key ^= (value + 0x9E3779B9 + (key << 6) + (key >> 2)) % 2**64
    words = [2 + len(fields), key % 2**64, opcode, *fields]
    return b"".join(word.to_bytes(8, "little") for word in words)


def test_device_copy_within_a_device(compiled):
    """No program for the CPU alone has device_copy: each move becomes one."""
    executable, inputs = compiled("loop")
    code, library = executable.save()
    changed, count = bytes(code), 0
    for line in executable.bytecode.splitlines():
        words = line.split("#")[0].split()
        if len(words) == 4 and words[1] == "0":  # index, opcode, from, to
            source, to = int(words[2]), int(words[3])
            count += changed.count(serialized(0, [source, to]))
            changed = changed.replace(
                serialized(0, [source, to]), serialized(19, [source, 0, 0, to])
            )
    assert count > 0
    copying = tvm.runtime.vm.Executable.load_exec(bytearray(changed), library)
    assert 19 in opcodes_of(copying)
    stock = tvm.runtime.vm.VirtualMachine(executable, tvm.cpu())
    vm = VirtualMachine(copying)
    assert_same(vm.invoke("main", *inputs), stock.invoke("main", *inputs))
    vm.validate()


@pytest.mark.parametrize("shape", [[2**33, 2**31], [2**62, 4], [-1, 3]])
def test_sizes_that_overflow_are_refused(shape):
    s = relay.var("s", shape=(2,), dtype="int64")
    full = relay.Function([s], relay.full(relay.const(1.0), s, "float32"))
    vm = VirtualMachine(compile_module(tvm.IRModule.from_expr(full)))
    with pytest.raises(UsageError, match="more bytes than can be addressed"):
        vm.invoke("main", np.array(shape))
    assert vm.invoke("main", np.array([2, 3])).shape == (2, 3)
    vm.validate()
