"""NaN is never lost on the way through maxima, minima, clipping and pooling."""

import numpy as np
import pytest
from test_relay_ops import run
from tvm import relay

from tvm_dtr.relay_ops import cumulative_sum, max_pool2d_gradient, scatter_rows, top_k

NAN = np.nan
A = np.array([NAN, 1, NAN, 2, 3], "float32")
B = np.array([1, NAN, NAN, 3, 2], "float32")


@pytest.mark.parametrize("op,expected", [(relay.maximum, np.maximum), (relay.minimum, np.minimum)])
def test_elementwise(op, expected):
    np.testing.assert_array_equal(run(op, A, B), expected(A, B))
    whole = np.arange(6).reshape(2, 3)
    np.testing.assert_array_equal(run(op, whole, whole[::-1, :1]), expected(whole, whole[::-1, :1]))


def test_clip():
    np.testing.assert_array_equal(run(relay.clip, A, a_min=1.5, a_max=2.5), np.clip(A, 1.5, 2.5))
    whole = np.arange(-3, 4)
    limited = run(relay.clip, whole, a_min=-3.4e38, a_max=2.0)
    np.testing.assert_array_equal(limited, np.minimum(whole, 2))


@pytest.mark.parametrize("op,expected", [(relay.max, np.max), (relay.min, np.min)])
def test_reduction(op, expected):
    x = np.random.default_rng(0).normal(size=(2, 3, 5)).astype("float32")
    x[0, 1, 2] = x[1, 2, 4] = NAN
    for axes, keepdims in (((1,), False), ((0, 2), True), ((2,), False)):
        got = run(op, x, axis=axes, keepdims=keepdims)
        np.testing.assert_array_equal(got, expected(x, axis=axes, keepdims=keepdims))


def test_max_pool():
    x = np.random.default_rng(0).normal(size=(2, 3, 5, 6)).astype("float32")
    x[0, 0, 1, 2] = NAN
    attrs = dict(pool_size=(2, 2), strides=(1, 1), padding=(1, 0, 0, 1))
    got = run(relay.nn.max_pool2d, x, **attrs)
    padded = np.pad(x, [(0, 0), (0, 0), (1, 0), (0, 1)], constant_values=-np.inf)
    windows = np.lib.stride_tricks.sliding_window_view(padded, (2, 2), axis=(2, 3))
    np.testing.assert_array_equal(got, windows.max((4, 5)))
    assert np.isnan(got).sum() == 4


def test_the_gradient_of_max_pool_goes_to_nan():
    x = np.array([[[[1, NAN, 3, 2]]]], "float32")
    dy = np.array([[[[5, 7]]]], "float32")
    attrs = dict(kernel=(1, 2), stride=(1, 2), before=(0, 0), dilation=(1, 1))
    got = run(max_pool2d_gradient, dy, x, **attrs)
    np.testing.assert_array_equal(got, [[[[0, 5, 7, 0]]]])


def test_top_k_takes_nan_for_the_largest():
    np.testing.assert_array_equal(run(top_k, A, k=3, axis=0), [0, 2, 4])
    np.testing.assert_array_equal(run(top_k, A, k=4, axis=0, largest=False), [1, 3, 4, 0])
    ties = np.array([[1, 2, 2, 1]], "int64")
    np.testing.assert_array_equal(run(top_k, ties, k=4, axis=1), [[1, 2, 0, 3]])


def test_scatter_combines_in_order():
    x, at = np.arange(3, dtype="float32").reshape(3, 1), np.array([0, 2, 0])
    new = np.array([[5], [NAN], [4]], "float32")
    expected = {"none": [4, 1, NAN], "max": [5, 1, NAN], "min": [0, 1, NAN], "add": [9, 1, NAN]}
    for reduction, values in expected.items():
        got = run(scatter_rows, x, at, new, reduction=reduction)
        np.testing.assert_array_equal(got[:, 0], np.array(values, "float32"))


@pytest.mark.parametrize("shape,axis", [((5,), 0), ((3, 4, 70), 1), ((2, 3), 1)])
def test_cumulative_sum(shape, axis):
    x = np.random.default_rng(0).integers(-9, 9, size=shape)
    np.testing.assert_array_equal(run(cumulative_sum, x, axis=axis), x.cumsum(axis))
    back = np.flip(np.flip(x, axis).cumsum(axis), axis) - x
    got = run(cumulative_sum, x, axis=axis, exclusive=True, backwards=True)
    np.testing.assert_array_equal(got, back)
