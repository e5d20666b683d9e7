"""tvm_dtr/profile.py: every run is counted, with the work that it does."""

import numpy as np
import pytest
from random_steps import as_step
from tvm import relay

import tvm_dtr
from tvm_dtr.compile import compile_step
from tvm_dtr.profile import kernel_bytes, profiled

ROWS, WIDTH, LAYERS = 256, 128, 6


@pytest.fixture(scope="module")
def program():
    """A chain whose softmaxes are kept until the end: there is something to evict."""
    x, w = relay.var("x", shape=(ROWS, WIDTH)), relay.var("w", shape=(WIDTH, WIDTH))
    layers = [x]
    for _ in range(LAYERS):
        layers.append(relay.nn.softmax(relay.nn.dense(layers[-1], w)))
    total = layers[1]
    for layer in layers[:1:-1]:
        total = relay.nn.softmax(relay.nn.dense(total + layer, w))
    return compile_step(as_step(relay.Function([x, w], relay.Tuple([relay.sum(total)]))))


def profile(program, budget, steps=2):
    vm = tvm_dtr.VirtualMachine(program, memory_budget=budget, policy="dtr-eq")
    x = np.ones((ROWS, WIDTH), "float32")
    with profiled(vm, program.graph) as rows:
        for _ in range(steps):
            vm.step(x=x)
    vm.step(x=x)  # no longer counted
    return rows, vm


def test_calls_work_and_bytes(program):
    rows, _ = profile(program, None)
    by_kind = {row["kernel"].rsplit("_", 1)[0]: row for row in rows}
    dense, softmax = by_kind["fused_nn_dense"], by_kind["fused_nn_softmax"]
    ops = [program.graph.kernels[op.kernel].name for op in program.graph.ops]
    assert softmax["calls"] == 2 * ops.count(softmax["kernel"]) > 2
    assert [row["rematerializations"] for row in rows] == [0] * len(rows)
    assert sum(row["share"] for row in rows) == pytest.approx(1)
    assert [row["share"] for row in rows] == sorted((r["share"] for r in rows), reverse=True)
    kernels = {kernel.name: kernel for kernel in program.graph.kernels}
    assert kernels[dense["kernel"]].flops == 2 * ROWS * WIDTH * WIDTH
    assert dense["gflops"] * dense["seconds"] * 1e9 == pytest.approx(
        dense["calls"] * 2 * ROWS * WIDTH * WIDTH
    )
    sizes = dict(zip(kernels, kernel_bytes(program.graph), strict=True))
    assert sizes[softmax["kernel"]] == 2 * ROWS * WIDTH * 4


def test_what_runs_again_is_told_apart(program):
    plain, _ = profile(program, None)
    rows, vm = profile(program, program.unbudgeted_peak_bytes * 7 // 10)
    assert sum(row["calls"] for row in rows) == sum(row["calls"] for row in plain)
    again = sum(row["rematerializations"] for row in rows)
    assert again == 2 * vm.stats["rematerializations"] > 0
    assert sum(row["remat_seconds"] for row in rows) > 0
