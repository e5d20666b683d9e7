"""What is in the data, of which type it is and how much it is changes nothing but the results."""

import os

os.environ.setdefault("TOPHUB_LOCATION", "NONE")

import numpy as np
import pytest
import tvm
from random_graphs import random_graph
from relay_programs import assert_same, compile_module
from tvm import relay

import tvm_dtr
from tvm_dtr.errors import BudgetError
from tvm_dtr.models.mlp import mlp
from tvm_dtr.replay import replay_of
from tvm_dtr.vm import VirtualMachine

BATCH, FEATURES, CLASSES = 2048, 6, 3  # as in tests/faults, so that kernels are shared
SPECIAL = {
    "ordinary": [1.0],
    "no numbers": [np.nan, 1.0],
    "infinities": [np.inf, -np.inf, 1.0],
    "denormals": [1e-40, -1e-45, 1e-38],
    "the largest": [3e38, -3e38],
}
TYPES = ("int8", "uint8", "bool", "float16", "int64", "float64")


@pytest.fixture(scope="module")
def program():
    model = mlp(batch=BATCH, seed=0, features=FEATURES, width=32, hidden_layers=6, classes=CLASSES)
    return tvm_dtr.build(model, loss="cross_entropy", optimizer=tvm_dtr.SGD(lr=0.1))


def run(program, special, **options):
    """Losses and parameters, as bytes, and what was decided, of three steps."""
    vm = VirtualMachine(program, thrash_limit=0, **options)
    rng = np.random.default_rng(0)
    found = []
    for _ in range(3):
        x = rng.normal(size=(BATCH, FEATURES)).astype("float32")
        x[rng.random(x.shape) < 0.2] = np.float32(rng.choice(SPECIAL[special]))
        found.append(vm.step(x=x, labels=rng.integers(0, CLASSES, BATCH))["loss"].tobytes())
    found += [array.tobytes() for array in vm.parameters.values()]
    vm.validate()
    counters = vm.counters()
    assert counters["peak_mapped_bytes"] <= counters["budget_bytes"] and counters["live_ops"] == 0
    return found, (counters["evictions"], counters["rematerializations"])


@pytest.mark.parametrize("policy", ["dtr-eq", "dtr"])
def test_data_decide_nothing(program, policy):
    """The same evictions whatever is in the data, and the bits of a run without a budget."""
    smallest = program.replay.smallest_budget(policy=policy, thrash_limit=0)
    decisions = set()
    for special in SPECIAL:
        expected, _ = run(program, special)
        found, decided = run(program, special, memory_budget=smallest, policy=policy)
        assert found == expected, special
        decisions.add(decided)
    assert len(decisions) == 1 and min(decisions.pop()) > 0


def chain(dtype, length=8):
    """Values of one type, each read again from the last to the first, as activations are."""
    x = relay.var("x", shape=(8192,), dtype=dtype)
    apart = relay.annotation.stop_fusion
    if dtype == "bool":
        forward, back = relay.logical_not, relay.logical_xor
    else:
        # x + 3 runs over the end of 8 bits, as it must in the same way each time.
        forward, back = lambda v: v + relay.const(3, dtype), relay.multiply
    values = [x]
    for _ in range(length):
        values.append(apart(forward(values[-1])))
    result = values[-1]
    for value in reversed(values[1:-1]):
        result = apart(back(result, value))
    return tvm.IRModule.from_expr(relay.Function([x], result))


@pytest.mark.parametrize("dtype", TYPES)
def test_types_of_all_widths(dtype):
    """From the budget that the first refusal asks for: the stock VM's bits, after evictions."""
    executable = compile_module(chain(dtype))
    x = np.random.default_rng(0).integers(-100, 100, 8192).astype(dtype)
    expected = tvm.runtime.vm.VirtualMachine(executable, tvm.cpu()).invoke("main", x)
    vm = VirtualMachine(executable, memory_budget=1, thrash_limit=0)
    vm.set_input("main", x)
    found = None
    while found is None:
        try:
            found = vm.resume() if vm.counters()["budget_bytes"] > 1 else vm.invoke("main")
        except BudgetError as error:
            vm.set_budget(error.needed_budget_bytes)
    assert_same(found, expected)
    vm.validate()
    counters = vm.counters()
    assert counters["rematerializations"] > 0
    assert counters["peak_mapped_bytes"] <= counters["budget_bytes"]


@pytest.mark.parametrize("seed", range(4))
def test_sizes_over_two_to_the_31(seed):
    """Sizes and budget 2^30 times as large (a step of 10^15 bytes): the same decisions."""
    graph, large = random_graph(seed), random_graph(seed)
    scale = 1 << 30
    large.storages = [size * scale for size in graph.storages]
    for kernel, other in zip(graph.kernels, large.kernels, strict=True):
        other.workspace_bytes = kernel.workspace_bytes * scale
    small, huge = replay_of(graph), replay_of(large)
    peak = small.run(exact_bytes=True)["peak_bytes"]
    evictions = 0
    for share in (1.0, 0.8, 0.6):
        options = {"thrash_limit": 0, "exact_bytes": True}
        found = small.run(budget=int(peak * share), **options)
        other = huge.run(budget=int(peak * share) * scale, **options)
        for name in ("result", "evictions", "rematerializations"):
            assert found[name] == other[name], name
        assert found["peak_bytes"] * scale == other["peak_bytes"]
        evictions += found["evictions"]
    assert evictions > 0
