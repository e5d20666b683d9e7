"""tvm_dtr/relay_ops/relu.py."""

import numpy as np
import tvm
from random_steps import as_step
from tvm import relay

from tvm_dtr.compile import compile_step


def test_relu_lets_nan_through_alone_and_after_a_convolution():
    x = relay.var("x", shape=(2, 3, 8, 8))
    w = relay.const(np.full((16, 3, 3, 3), 0.5, "float32"))
    y = relay.nn.conv2d(x, w, channels=16, kernel_size=(3, 3), padding=(1, 1))
    body = relay.Tuple([relay.nn.relu(x), relay.nn.relu(y + relay.const(1.0))])
    program = compile_step(as_step(relay.Function([x], body)))
    data = np.random.default_rng(0).normal(size=(2, 3, 8, 8)).astype("float32")
    data[1, 2, 3, 4] = np.nan
    vm = tvm.runtime.vm.VirtualMachine(program.executable, tvm.cpu())
    alone, after = (field.numpy() for field in vm.invoke("main", tvm.nd.array(data)))
    np.testing.assert_array_equal(alone, np.maximum(data, 0))
    assert np.isnan(after[1, :, 2:5, 3:6]).all() and np.isnan(after).sum() == 16 * 9
