"""A virtual machine's arguments: each wrong one is refused in one line."""

import numpy as np
import pytest
import tvm
from relay_programs import assert_same, compile_module, straight_line

from tvm_dtr.errors import UsageError
from tvm_dtr.vm import VirtualMachine


@pytest.fixture(scope="module")
def executable():
    return compile_module(straight_line()[0])


@pytest.mark.parametrize("seed", [-1, 2**64, 1.5, "3", None, True])
def test_a_seed_has_64_bits(executable, seed):
    with pytest.raises(
        UsageError, match=r"^seed [^\n]*: expected an integer from 0 to 2\*\*64 - 1$"
    ):
        VirtualMachine(executable, seed=seed)


@pytest.mark.parametrize("seed", [0, 2**63 - 1, 2**63, 2**64 - 1, np.int64(7)])
def test_every_seed_of_64_bits_is_taken(executable, seed):
    VirtualMachine(executable, seed=seed, policy="random")


@pytest.mark.parametrize("limit", [-1, -0.5, float("nan"), "10", None, True])
def test_a_thrash_limit_is_a_number_from_0(executable, limit):
    with pytest.raises(UsageError, match=r"^thrash limit [^\n]*: expected a number from 0 [^\n]*$"):
        VirtualMachine(executable, thrash_limit=limit)


def test_a_thrash_limit_may_be_infinite(executable):
    VirtualMachine(executable, thrash_limit=float("inf"))


def test_a_path_is_no_program(tmp_path):
    for path in (tmp_path / "p.tdtr", "p.tdtr"):
        with pytest.raises(UsageError, match=r"p\.tdtr' is a path: load it with tvm_dtr\.load"):
            VirtualMachine(path)


@pytest.mark.parametrize(("wrong", "kind"), [(None, "NoneType"), (3, "int"), ([], "list")])
def test_a_program_is_a_program(wrong, kind):
    with pytest.raises(UsageError, match=f"^program is a {kind}: expected a Program from"):
        VirtualMachine(wrong)


@pytest.mark.parametrize("config", ["naive", "pooled", {tvm.cpu(): VirtualMachine.NAIVE_ALLOCATOR}])
def test_memory_cfg_is_taken_as_tvm_takes_it(executable, config):
    _, inputs = straight_line()
    stock = tvm.runtime.vm.VirtualMachine(executable, tvm.cpu(), config)
    expected = stock.invoke("main", *inputs)
    third = VirtualMachine(executable, tvm.cpu(), config)
    named = VirtualMachine(executable, tvm.cpu(), memory_cfg=config)
    for vm in (third, named):
        assert_same(vm.invoke("main", *inputs), expected)
        assert vm.stats["budget_bytes"] is None


def test_memory_cfg_is_checked(executable):
    for wrong in ("pool", 3):
        with pytest.raises(
            UsageError, match=r"^memory_cfg [^\n]*: expected naive, pooled or a dict"
        ):
            VirtualMachine(executable, tvm.cpu(), memory_cfg=wrong)
