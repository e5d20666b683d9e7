"""tvm_dtr/compile: the emitted program against TVM's own compiler, on TVM's own VM."""

import os
from pathlib import Path

import numpy as np
import pytest
import tvm
from random_steps import as_step, random_step, run_stock, same_bits
from tvm import relay

from tvm_dtr.compile import compile_step
from tvm_dtr.compile.codegen import CONFIG, OPT_LEVEL, quiet

# Passes of level 3 that change what is computed, not how: ours are listed in compile/fuse.py.
OTHER_PASSES = [
    "AlterOpLayout",
    "BackwardFoldScaleAxis",
    "CanonicalizeCast",
    "CombineParallelBatchMatmul",
    "CombineParallelConv2d",
    "CombineParallelDense",
    "EliminateCommonSubexpr",
    "FastMath",
    "ForwardFoldScaleAxis",
    "SimplifyExpr",
    "SimplifyExprPostAlterOp",
]


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TVM_DTR_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
        yield


def stock_executable(step, target):
    context = tvm.transform.PassContext(OPT_LEVEL, disabled_pass=OTHER_PASSES, config=CONFIG)
    with quiet(), context:
        return relay.vm.compile(tvm.IRModule.from_expr(step.function), target)


# More for a thorough check: TVM_DTR_RANDOM_PROGRAMS=200.
RANDOM_PROGRAMS = int(os.environ.get("TVM_DTR_RANDOM_PROGRAMS", "16"))


@pytest.mark.parametrize("seed", range(RANDOM_PROGRAMS))
def test_bitwise_equal_to_stock_compiler(seed):
    step = random_step(seed)
    program = compile_step(step)
    stock = stock_executable(step, program.target)
    assert same_bits(run_stock(program.executable, step), run_stock(stock, step))


def test_runs_again_with_other_inputs():
    step = random_step(3)
    program = compile_step(step)
    vm = tvm.runtime.vm.VirtualMachine(program.executable, tvm.cpu())
    stock = stock_executable(step, program.target)
    for seed in (1, 2):
        x = np.random.default_rng(seed).standard_normal((4, 6)).astype("float32")
        found = [r.numpy() for r in vm.invoke("main", x, *step.initial_state.values())]
        assert same_bits(found, run_stock(stock, step, seed))


def test_convolution_training_shapes():
    x, w = relay.var("x", shape=(2, 3, 8, 8)), relay.var("w", shape=(4, 3, 3, 3))
    y = relay.nn.relu(relay.nn.conv2d(x, w, padding=(1, 1)))
    pooled = relay.nn.max_pool2d(y, (2, 2), (2, 2))
    back = relay.nn.max_pool2d_grad(pooled, y, (2, 2), (2, 2))
    step = as_step(relay.Function([x, w], relay.Tuple([relay.sum(pooled), back])))
    program = compile_step(step)
    stock = stock_executable(step, program.target)
    assert same_bits(run_stock(program.executable, step), run_stock(stock, step))


def test_results_that_need_no_kernel():
    x, y = relay.var("x", shape=(2, 3)), relay.var("y", shape=(4,))
    constant = relay.const(np.arange(3, dtype="int64"))
    function = relay.Function([x, y], relay.Tuple([y, relay.reshape(x, (6,)), constant, x, y]))
    step = as_step(function)
    program = compile_step(step)
    y_out, view, numbers, x_out, again = run_stock(program.executable, step)
    assert program.graph.kernels == []
    assert view.shape == (6,) and view.tobytes() == x_out.tobytes()
    assert y_out.tobytes() == again.tobytes() == step.initial_state["y"].tobytes()
    assert numbers.tolist() == [0, 1, 2]


def test_writes_results_to_given_arrays():
    """Result registers are never reused, so that the VM can write results to given arrays."""
    x = relay.var("x", shape=(4, 6))
    hidden = relay.nn.softmax(x)
    results = [relay.nn.softmax(hidden), relay.mean(hidden, axis=0)]
    step = as_step(relay.Function([x], relay.Tuple(results)))
    program = compile_step(step)
    expected = run_stock(program.executable, step)
    vm = tvm.runtime.vm.VirtualMachine(program.executable, tvm.cpu())
    arrays = [tvm.nd.empty(r.shape, str(r.dtype)) for r in expected]
    data = np.random.default_rng(1).standard_normal((4, 6)).astype("float32")
    vm.invoke_with_outputs("main", {"x": tvm.nd.array(data)}, arrays)
    assert same_bits([a.numpy() for a in arrays], expected)


def test_segments_change_nothing_but_fusion(monkeypatch):
    step = random_step(5, calls=40)
    whole = compile_step(step)
    monkeypatch.setattr("tvm_dtr.compile.fuse.SEGMENT_CALLS", 7)
    cut = compile_step(step)
    assert len(cut.graph.ops) > len(whole.graph.ops)
    left, right = run_stock(whole.executable, step), run_stock(cut.executable, step)
    for a, b in zip(left, right, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def test_costs_repeat_from_the_cache():
    step = random_step(6)
    first, second = compile_step(step), compile_step(step)
    assert first.graph == second.graph
    assert all(kernel.cost_ns > 0 for kernel in first.graph.kernels)


def test_same_step_gives_same_library():
    step = random_step(7)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TVM_DTR_CACHE_DIR", "none")
        paths = [compile_step(step, jobs=1).library_path for _ in range(2)]
    contents = [Path(path).read_bytes() for path in paths]
    assert contents[0] == contents[1]


def test_progress_counts_to_the_number_of_kernels(monkeypatch):
    monkeypatch.setenv("TVM_DTR_CACHE_DIR", "none")
    calls = []
    program = compile_step(random_step(1), progress=lambda *call: calls.append(call))
    count = len(program.graph.kernels)
    fused = [call for call in calls if call[2] in ("cutting into segments", "fusing segments")]
    assert calls[: len(fused)] == fused and fused[0][0] == 0 and fused[0][1] > 25
    calls = calls[len(fused) :]
    compiled = [call for call in calls if not call[2].startswith("timing ")]
    assert [done for done, _, _ in compiled] == list(range(1, count + 1))
    assert {total for _, total, _ in calls} == {count}
    assert {name for _, _, name in compiled} == {k.name for k in program.graph.kernels}
