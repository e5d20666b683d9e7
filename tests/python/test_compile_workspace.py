"""tvm_dtr/compile/workspace.py: the bound against TIR written by hand and against what is taken."""

import pytest
import tvm
from random_steps import as_step
from tvm import relay
from tvm.script import tir as T

from tvm_dtr.compile import compile_step
from tvm_dtr.compile.workspace import Workspace, workspace_of


@T.prim_func
def nested(a: T.Buffer((64,), "float32")):
    outer = T.allocate([1000], "float32", "global")
    o = T.Buffer((1000,), data=outer)
    for i in T.parallel(4):
        inner = T.allocate([2000], "float32x4", "global")
        b = T.Buffer((2000,), "float32x4", data=inner)
        b[0] = T.Broadcast(a[i], 4)
        o[i] = a[i]
    second = T.allocate([256], "float32", "global")
    s = T.Buffer((256,), data=second)
    small = T.allocate([255], "float32", "global")
    tiny = T.Buffer((255,), data=small)
    s[0] = o[0]
    tiny[0] = s[0]
    a[0] = tiny[0]


def test_serial_and_parallel_parts():
    bound = workspace_of(nested)
    # 4000 and 1024 bytes, rounded up to 128; 1020 bytes go on the stack.
    assert bound == Workspace(serial=4096 + 1024, per_thread=32000)
    assert bound.total(threads=3) == 5120 + 3 * 32000


@pytest.mark.parametrize("shape", [(2, 8, 16, 16), (1, 3, 33, 33)])
def test_bound_holds_for_convolutions(shape, monkeypatch, tmp_path):
    """total() is what the build stores unless the measured peak is larger: it must not be."""
    monkeypatch.setenv("TVM_DTR_CACHE_DIR", "none")
    x, w = relay.var("x", shape=shape), relay.var("w", shape=(16, shape[1], 3, 3))
    y = relay.nn.conv2d(x, w, padding=(1, 1))
    step = as_step(relay.Function([x, w], relay.Tuple([y, relay.mean(y)])))
    peaks = []
    measure = tvm.get_global_func

    def spy(name, *args):
        function = measure(name, *args)
        if name != "tvm_dtr.measure_kernel":
            return function
        return lambda *call: peaks.append(function(*call)) or peaks[-1]

    monkeypatch.setattr(tvm, "get_global_func", spy)
    program = compile_step(step)
    kernels = program.graph.kernels
    assert len(peaks) == 2 * len(kernels), "each is measured in two rounds"
    assert peaks[0][1] > 0, "a convolution packs its input into workspace"
    for kernel, (_, peak) in zip([*kernels, *kernels], peaks, strict=True):
        assert peak <= kernel.workspace_bytes
        assert kernel.workspace_bytes < 4 * peak + 4096
