"""tvm_dtr/frontend/pooling.py: which element of each window was the largest."""

import itertools
import math

import numpy as np
import pytest
from onnx_models import ModelMaker, compiled


def largest(x, kernel, strides, pads, dilations, out, column_major):
    """Indices by a loop over windows."""
    size = x.shape[2:]
    found = np.zeros((*x.shape[:2], *out), "int64")
    for plane in np.ndindex(*x.shape[:2]):
        for window in np.ndindex(*out):
            best = None
            for place in itertools.product(*map(range, kernel)):
                at = tuple(
                    w * s + p * d - b
                    for w, s, p, d, b in zip(window, strides, place, dilations, pads, strict=False)
                )
                inside = all(0 <= a < n for a, n in zip(at, size, strict=True))
                if inside and (best is None or x[plane][at] > x[plane][best]):
                    best = at
            order = "F" if column_major else "C"
            number = np.ravel_multi_index(best, size, order=order)
            found[plane + window] = np.ravel_multi_index(plane, x.shape[:2]) * math.prod(
                size
            ) + int(number)
    return found


@pytest.mark.parametrize(
    "shape, attrs",
    [
        ((2, 3, 9), {"kernel_shape": [3], "strides": [2], "pads": [1, 1]}),
        (
            (2, 2, 6, 7),
            {"kernel_shape": [3, 2], "strides": [2, 1], "pads": [1, 0, 2, 1], "storage_order": 1},
        ),
        ((1, 2, 7, 6), {"kernel_shape": [2, 3], "dilations": [2, 1], "ceil_mode": 1}),
        ((1, 2, 4, 5, 4), {"kernel_shape": [2, 2, 2], "strides": [2, 1, 2]}),
    ],
)
def test_max_pool_gives_the_indices_of_the_largest(shape, attrs):
    rank = len(shape) - 2
    # Whole numbers: many ties, of which the first counts.
    x = np.random.default_rng(0).integers(-4, 4, shape).astype("float32")
    maker = ModelMaker()
    results = maker.node("MaxPool", [maker.weight("x", x)], outputs=2, **attrs)
    run = compiled(maker.model(*results))
    got = run(target=np.zeros(run.step.inputs[-1].shape, "float32"))
    y, indices = got[results[0]], got[results[1]]
    np.testing.assert_array_equal(
        indices,
        largest(
            x,
            attrs["kernel_shape"],
            attrs.get("strides", [1] * rank),
            attrs.get("pads", [0] * 2 * rank),
            attrs.get("dilations", [1] * rank),
            y.shape[2:],
            attrs.get("storage_order", 0),
        ),
    )
    if not attrs.get("storage_order"):
        np.testing.assert_array_equal(np.ravel(x)[indices], y)
    assert np.abs(got["grad:x"]).max() > 0
