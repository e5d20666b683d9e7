"""Kernels of our own against plain NumPy, at sizes that reach every part of their loops."""

import numpy as np
import pytest
import tvm
from tvm import relay
from tvm.contrib import graph_executor

from tvm_dtr.relay_ops import (
    batch_norm_gradient_sums,
    batch_statistics,
    conv2d,
    conv2d_input_gradient,
    conv2d_weight_gradient,
    dropout_mask,
    matmul,
    max_pool2d_gradient,
    take_gradient,
    take_gradient_onto,
)
from tvm_dtr.relay_ops.dropout_mask import threefry2x32


def run(op, *arrays, **attrs):
    operands = [relay.var(f"a{i}", shape=a.shape, dtype=str(a.dtype)) for i, a in enumerate(arrays)]
    module = tvm.IRModule.from_expr(relay.Function(operands, op(*operands, **attrs)))
    with tvm.transform.PassContext(opt_level=0):
        built = relay.build(module, "llvm")
    executor = graph_executor.GraphModule(built["default"](tvm.cpu()))
    for i, array in enumerate(arrays):
        executor.set_input(i, array)
    executor.run()
    results = [executor.get_output(i).numpy() for i in range(executor.get_num_outputs())]
    return results[0] if len(results) == 1 else results


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


def taps_of(x_shape, w_shape, out, stride, before, dilation, groups):
    """Every (result, source, filter) index triple of a convolution, padding left out."""
    height, width = x_shape[2:]
    filters, per_in, *kernel = w_shape
    for k, c, i, j in np.ndindex(filters, per_in, *kernel):
        channel = k // (filters // groups) * per_in + c
        for a, b in np.ndindex(*out):
            row = a * stride[0] + i * dilation[0] - before[0]
            column = b * stride[1] + j * dilation[1] - before[1]
            if 0 <= row < height and 0 <= column < width:
                yield (k, a, b), (channel, row, column), (k, c, i, j)


SMALL = {
    # batch, channels, filters, groups, size, out, kernel, stride, before, dilation
    "plain": (2, 3, 16, 1, (6, 7), (6, 7), (3, 3), (1, 1), (1, 1), (1, 1)),
    "uneven filters": (1, 2, 5, 1, (5, 21), (5, 21), (3, 3), (1, 1), (1, 1), (1, 1)),
    "stride": (2, 2, 4, 1, (9, 10), (5, 5), (3, 3), (2, 2), (1, 1), (1, 1)),
    "stride beyond the kernel": (1, 2, 2, 1, (10, 11), (4, 3), (2, 1), (3, 4), (0, 0), (1, 1)),
    "stride and dilation": (1, 2, 2, 1, (13, 12), (4, 4), (3, 3), (2, 3), (1, 2), (3, 2)),
    "only padding in some windows": (1, 1, 2, 1, (3, 3), (9, 9), (2, 2), (1, 1), (4, 3), (1, 1)),
    "groups": (2, 6, 4, 2, (5, 6), (5, 6), (3, 3), (1, 1), (1, 1), (1, 1)),
    "depthwise": (2, 16, 16, 16, (4, 4), (2, 2), (3, 3), (2, 2), (1, 1), (1, 1)),
    "blocks of rows": (1, 2, 1, 1, (300, 130), (300, 130), (1, 3), (1, 1), (0, 1), (1, 1)),
    "blocks of rows and stride": (
        1,
        4,
        1,
        1,
        (181, 200),
        (91, 100),
        (3, 1),
        (2, 2),
        (1, 0),
        (1, 1),
    ),
    "many groups in one task": (8, 64, 64, 64, (3, 3), (3, 3), (2, 2), (1, 1), (1, 1), (1, 1)),
}


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("name", SMALL)
def test_direct_conv2d(name, dtype):
    batch, channels, filters, groups, size, out, kernel, *window = SMALL[name]
    rng = np.random.default_rng(0)
    x = rng.normal(size=(batch, channels, *size)).astype(dtype)
    w = rng.normal(size=(filters, channels // groups, *kernel)).astype(dtype)
    dy = rng.normal(size=(batch, filters, *out)).astype(dtype)
    y, dx = np.zeros(dy.shape), np.zeros(x.shape)
    for at, source, tap in taps_of(x.shape, w.shape, out, *window, groups):
        y[(slice(None), *at)] += w[tap] * x[(slice(None), *source)]
        dx[(slice(None), *source)] += w[tap] * dy[(slice(None), *at)]
    attrs = dict(zip(("stride", "before", "dilation"), window, strict=True), groups=groups)
    tolerance = {"rtol": 0, "atol": 1e-11 if dtype == "float64" else 1e-4}
    np.testing.assert_allclose(run(conv2d, x, w, out=out, **attrs), y, **tolerance)
    got = run(conv2d_input_gradient, dy, w, size=size, **attrs)
    np.testing.assert_allclose(got, dx, **tolerance)


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


@pytest.mark.parametrize("shape", [(3, 5, 9, 16), (2, 3, 7, 19), (4, 2, 1, 1), (6, 3), (2, 1, 200)])
def test_sums_per_channel(shape):
    rng = np.random.default_rng(0)
    x, dy = rng.normal(size=shape) + 3, rng.normal(size=shape)
    axes = tuple(i for i in range(len(shape)) if i != 1)
    mean, variance = run(batch_statistics, x)
    np.testing.assert_allclose(mean, x.mean(axes), rtol=1e-13)
    np.testing.assert_allclose(variance, x.var(axes), rtol=1e-12, atol=1e-14)
    off = x - x.mean(axes, keepdims=True)
    total, product = run(batch_norm_gradient_sums, dy, x, x.mean(axes))
    np.testing.assert_allclose(total, dy.sum(axes), rtol=1e-11, atol=1e-13)
    np.testing.assert_allclose(product, (dy * off).sum(axes), rtol=1e-11, atol=1e-12)


def test_variance_far_from_zero_does_not_cancel():
    x = (np.random.default_rng(0).normal(size=(8, 2, 64)) * 1e-2 + 100).astype("float32")
    _, variance = run(batch_statistics, x)
    np.testing.assert_allclose(variance, x.astype("float64").var((0, 2)), rtol=1e-2)


def test_dropout_mask_is_threefry():
    """Against the generator's definition in NumPy, which gives the published test vectors."""
    with np.errstate(over="ignore"):
        zero = np.uint32(0)
        first = threefry2x32((zero, zero), (zero, zero))
        assert [hex(v) for v in first] == ["0x6b200159", "0x99ba4efe"]
        pi = [np.uint32(v) for v in (0x13198A2E, 0x03707344, 0x243F6A88, 0x85A308D3)]
        assert [hex(v) for v in threefry2x32(tuple(pi[:2]), tuple(pi[2:]))] == [
            "0xc4923a9c",
            "0x483df7a0",
        ]
        key = np.array([7, 9], "uint32")
        words = [threefry2x32(tuple(key), (np.uint32(i), np.uint32(3)))[0] for i in range(3000)]
    got = run(dropout_mask, key, shape=(3, 1000), dtype="float32", ratio=0.5, stream=3)
    expected = np.where(np.array(words) >= 2**31, 2.0, 0.0).reshape(3, 1000)
    np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_take_gradient_sums_repeated_indices(axis):
    rng = np.random.default_rng(0)
    shape, index = (4, 5, 130), np.array([[3, 0], [3, 3]])
    y = np.take(np.zeros(shape), index, axis)
    dy = rng.normal(size=y.shape)
    expected = np.zeros(shape)
    moved = np.moveaxis(expected, axis, 0)
    flat_dy = np.moveaxis(dy, (axis, axis + 1), (0, 1))
    for at in np.ndindex(2, 2):
        moved[index[at]] += flat_dy[at]
    got = run(take_gradient, dy, index, shape=shape, axis=axis)
    np.testing.assert_allclose(got, expected, rtol=1e-12)
    onto = rng.normal(size=shape)

    def added(onto, dy, index):
        return take_gradient_onto(onto, take_gradient(dy, index, shape, axis))

    np.testing.assert_allclose(run(added, onto, dy, index), onto + expected, rtol=1e-12)


# batch, rows, depth, columns: tiles, panels and blocks of depth that are whole, cut and single.
PRODUCTS = [
    (1, 16, 32, 64),
    (1, 13, 600, 37),
    (1, 70, 1100, 33),
    (1, 1, 9, 5),
    (3, 17, 30, 20),
]


@pytest.mark.parametrize("transposed", [(False, False), (False, True), (True, False), (True, True)])
@pytest.mark.parametrize("sizes", PRODUCTS)
def test_matmul(sizes, transposed):
    batch, rows, depth, columns = sizes
    rng = np.random.default_rng(rows)
    a, b = rng.standard_normal((batch, rows, depth)), rng.standard_normal((batch, depth, columns))
    if batch == 1:
        a, b = a[0], b[0]
    left = np.swapaxes(a, -1, -2) if transposed[0] else a
    right = np.swapaxes(b, -1, -2) if transposed[1] else b
    arrays = [np.ascontiguousarray(x, "float32") for x in (left, right)]
    found = run(matmul, *arrays, transpose_a=transposed[0], transpose_b=transposed[1])
    np.testing.assert_allclose(found, a @ b, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("stacked", [0, 1])
def test_matmul_of_one_matrix_with_a_stack(stacked):
    rng = np.random.default_rng(0)
    shapes = [(3 if stacked == 0 else 1, 6, 20), (3 if stacked == 1 else 1, 20, 18)]
    a, b = (rng.standard_normal(shape).astype("float32") for shape in shapes)
    np.testing.assert_allclose(run(matmul, a, b), a @ b, rtol=1e-4, atol=1e-4)
