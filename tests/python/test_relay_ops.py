"""Kernels of our own against plain NumPy, at sizes that reach every part of their loops."""

import numpy as np
import pytest
import tvm
from tvm import relay
from tvm.contrib import graph_executor

from tvm_dtr.relay_ops import conv2d_weight_gradient, max_pool2d_gradient


def run(op, *arrays, **attrs):
    operands = [relay.var(f"a{i}", shape=a.shape, dtype=str(a.dtype)) for i, a in enumerate(arrays)]
    module = tvm.IRModule.from_expr(relay.Function(operands, op(*operands, **attrs)))
    with tvm.transform.PassContext(opt_level=0):
        built = relay.build(module, "llvm")
    executor = graph_executor.GraphModule(built["default"](tvm.cpu()))
    for i, array in enumerate(arrays):
        executor.set_input(i, array)
    executor.run()
    return executor.get_output(0).numpy()


def weight_gradient(dy, x, kernel, stride, before, dilation, groups):
    """The definition, tap by tap."""
    filters, channels = dy.shape[1], x.shape[1] // groups
    dw = np.zeros((filters, channels, *kernel))
    reach = [d * (k - 1) for d, k in zip(dilation, kernel, strict=True)]
    spread = [(n - 1) * s + 1 for n, s in zip(dy.shape[2:], stride, strict=True)]
    padding = [(b, r + n) for b, r, n in zip(before, reach, spread, strict=True)]
    x = np.pad(x, [(0, 0), (0, 0), *padding])
    for i in range(kernel[0]):
        for j in range(kernel[1]):
            rows = slice(i * dilation[0], i * dilation[0] + spread[0], stride[0])
            columns = slice(j * dilation[1], j * dilation[1] + spread[1], stride[1])
            window = x[:, :, rows, columns]
            for k in range(filters):
                first = k // (filters // groups) * channels
                part = window[:, first : first + channels]
                dw[k, :, i, j] = np.einsum("nyx,ncyx->c", dy[:, k], part)
    return dw


GEOMETRIES = {
    # batch, channels, filters, groups, size, out, kernel, stride, before, dilation
    "tiles": (2, 8, 8, 1, (6, 16), (6, 16), (3, 3), (1, 1), (1, 1), (1, 1)),
    "odd tiles and widths": (3, 3, 5, 1, (7, 21), (7, 21), (3, 3), (1, 1), (1, 1), (1, 1)),
    "two vectors and a rest": (1, 2, 3, 1, (3, 37), (3, 37), (1, 5), (1, 1), (0, 2), (1, 1)),
    "stride": (2, 4, 6, 1, (9, 17), (5, 9), (3, 3), (2, 2), (1, 1), (1, 1)),
    "stride beyond the kernel": (2, 4, 2, 1, (10, 30), (4, 10), (2, 2), (3, 3), (0, 0), (1, 1)),
    "dilation and stride": (2, 2, 4, 1, (13, 19), (4, 8), (3, 3), (2, 2), (1, 2), (3, 2)),
    "groups": (2, 6, 4, 2, (6, 9), (6, 9), (3, 3), (1, 1), (1, 1), (1, 1)),
    "depthwise": (2, 5, 5, 5, (6, 7), (3, 4), (3, 3), (2, 2), (1, 1), (1, 1)),
    "blocks of rows": (1, 4, 4, 1, (90, 100), (90, 100), (3, 3), (1, 1), (1, 1), (1, 1)),
    "one row per block": (1, 4, 1, 1, (3, 3000), (3, 3000), (3, 3), (1, 1), (1, 1), (1, 1)),
}


@pytest.mark.parametrize("name", GEOMETRIES)
def test_conv2d_weight_gradient(name):
    batch, channels, filters, groups, size, out, kernel, stride, before, dilation = GEOMETRIES[name]
    rng = np.random.default_rng(0)
    x, dy = rng.normal(size=(batch, channels, *size)), rng.normal(size=(batch, filters, *out))
    attrs = dict(kernel=kernel, stride=stride, before=before, dilation=dilation, groups=groups)
    got = run(conv2d_weight_gradient, dy, x, **attrs)
    np.testing.assert_allclose(got, weight_gradient(dy, x, **attrs), rtol=1e-11, atol=1e-11)


def test_max_pool2d_gradient_overlapping_windows():
    x = np.array([[[[1, 3, 3], [2, 3, 0], [5, 5, 1]]]], "float32")
    dy = np.array([[[[1, 10], [100, 1000]]]], "float32")
    got = run(
        max_pool2d_gradient, dy, x, kernel=(2, 2), stride=(1, 1), before=(0, 0), dilation=(1, 1)
    )
    np.testing.assert_array_equal(got, [[[[0, 11, 0], [0, 0, 0], [100, 1000, 0]]]])


def test_max_pool2d_gradient_ignores_padding():
    x = np.full((1, 1, 2, 2), -5, "float32")
    dy = np.ones((1, 1, 2, 2), "float32")
    got = run(
        max_pool2d_gradient, dy, x, kernel=(2, 2), stride=(2, 2), before=(1, 1), dilation=(1, 1)
    )
    np.testing.assert_array_equal(got, [[[[1, 1], [1, 1]]]])
