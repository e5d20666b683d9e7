"""Kills that relay.vm.compile writes too early are found and taken out."""

import numpy as np
import tvm
from relay_programs import assert_same, compile_module, randn
from tvm import relay

from tvm_dtr.plugin import load_plugin
from tvm_dtr.vm import VirtualMachine

load_plugin()
repair = tvm.get_global_func("tvm_dtr.repair_lifetimes")


def match_in_a_branch() -> tvm.IRModule:
    """x is read in a branch with a match in it, and again behind the branch."""
    module = tvm.IRModule()
    module.import_from_std("prelude.rly")
    _, cons, nil = module.get_type("List")
    x, y = relay.var("x", shape=(4,)), relay.var("y", shape=(4,))
    head, tail, taken, either = (relay.var(name) for name in ("head", "tail", "taken", "either"))
    pattern = relay.adt.PatternConstructor(
        cons, [relay.adt.PatternVar(head), relay.adt.PatternVar(tail)]
    )
    clauses = [relay.adt.Clause(pattern, head), relay.adt.Clause(relay.adt.PatternWildcard(), y)]
    match = relay.adt.Match(cons(relay.tanh(x), nil()), clauses)
    first = relay.Let(taken, match, taken + x)
    branch = relay.If(relay.greater(relay.sum(x), relay.const(0.0)), first, x)
    module["main"] = relay.Function([x, y], relay.Let(either, branch, relay.Tuple([either, x, x])))
    return module


def test_what_is_read_behind_a_branch_is_there():
    executable = compile_module(match_in_a_branch())
    for x in (np.full(4, 0.5, "float32"), np.full(4, -0.5, "float32")):
        vm = VirtualMachine(executable, memory_budget="1MiB")
        either, same, again = vm.invoke("main", x, randn(4))
        expected = np.tanh(x) + x if x[0] > 0 else x
        np.testing.assert_allclose(either.numpy(), expected, rtol=1e-6)
        assert same.numpy().tobytes() == again.numpy().tobytes() == x.tobytes()


def test_the_stock_vm_then_gives_the_same():
    executable = compile_module(match_in_a_branch())
    assert repair(executable.mod) > 0
    assert repair(executable.mod) == 0
    inputs = randn(4), randn(4)
    stock = tvm.runtime.vm.VirtualMachine(executable, tvm.cpu()).invoke("main", *inputs)
    assert_same(VirtualMachine(executable).invoke("main", *inputs), stock)
