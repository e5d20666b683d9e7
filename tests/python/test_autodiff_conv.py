"""Convolution gradients in float64 against finite differences."""

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from onnx_models import ModelMaker, check_gradients
from tvm import relay

from tvm_dtr.relay_graph import post_order, shape_of


def conv_model(x, w, bias=False, **attrs):
    rng = np.random.default_rng(0)
    maker = ModelMaker(dtype="float64")
    operands = [maker.weight("x", rng.normal(size=x)), maker.weight("w", rng.normal(size=w))]
    if bias:
        operands.append(maker.weight("b", rng.normal(size=w[0])))
    return maker.model(maker.node("Conv", operands, **attrs))


CASES = {
    "plain with bias": ((2, 3, 6, 5), (4, 3, 3, 3), {"bias": True, "pads": [1, 1, 1, 1]}),
    "stride, odd size, asymmetric": (
        (2, 3, 7, 6),
        (4, 3, 3, 3),
        {"strides": [2, 2], "pads": [0, 1, 2, 1]},
    ),
    "stride beyond the kernel": ((2, 3, 8, 9), (4, 3, 2, 3), {"strides": [3, 4]}),
    "dilation": ((2, 3, 9, 8), (4, 3, 3, 2), {"dilations": [2, 2], "pads": [1, 0, 1, 3]}),
    "dilation and stride": (
        (2, 3, 12, 11),
        (4, 3, 3, 3),
        {"dilations": [2, 3], "strides": [2, 3], "pads": [2, 1, 0, 3]},
    ),
    "padding beyond the kernel": (
        (2, 3, 5, 5),
        (4, 3, 2, 2),
        {"pads": [3, 2, 2, 4], "strides": [2, 1]},
    ),
    "pointwise, stride": ((2, 3, 5, 6), (4, 3, 1, 1), {"strides": [2, 2]}),
    "pointwise, padded": ((2, 3, 4, 4), (4, 3, 1, 1), {"pads": [1, 1, 1, 1]}),
    "pointwise, groups": ((2, 4, 4, 4), (4, 2, 1, 1), {"group": 2}),
    "groups": ((2, 4, 7, 6), (6, 2, 3, 3), {"group": 2, "pads": [1, 1, 1, 1], "strides": [2, 1]}),
    "depthwise": ((2, 4, 7, 6), (4, 1, 3, 3), {"group": 4, "pads": [1, 1, 1, 1]}),
    "depthwise, stride": (
        (2, 4, 7, 6),
        (4, 1, 3, 3),
        {"group": 4, "pads": [1, 1, 1, 1], "strides": [2, 2]},
    ),
    "depthwise, multiplier": ((2, 3, 5, 5), (6, 1, 3, 3), {"group": 3, "pads": [1, 1, 1, 1]}),
    "one-dimensional": ((2, 4, 9), (6, 4, 3), {"pads": [1, 1], "strides": [2]}),
}


@pytest.mark.parametrize("case", CASES)
def test_conv(case):
    x, w, attrs = CASES[case]
    check_gradients(conv_model(x, w, **attrs))


@st.composite
def geometries(draw):
    small = st.integers(1, 3)
    group = draw(st.sampled_from([1, 1, 2]))
    kernel, dilation = draw(st.tuples(small, small)), draw(st.tuples(small, small))
    pads = draw(st.tuples(*[st.integers(0, 3)] * 4))
    reach = [dilation[i] * (kernel[i] - 1) + 1 for i in (0, 1)]
    size = [max(reach[i] - pads[i] - pads[i + 2], 1) + draw(st.integers(0, 5)) for i in (0, 1)]
    per_in, per_out = draw(small), draw(small)
    return (
        (draw(small), group * per_in, *size),
        (group * per_out, per_in, *kernel),
        {
            "group": group,
            "strides": draw(st.tuples(small, small)),
            "pads": pads,
            "dilations": dilation,
        },
    )


@settings(max_examples=8, deadline=None, phases=[Phase.generate], derandomize=True)
@given(geometries())
def test_conv_of_any_geometry(geometry):
    x, w, attrs = geometry
    # The reference evaluator of ONNX fails for some paddings; the forward op is checked above.
    check_gradients(conv_model(x, w, **attrs), reference=False, nonzero=False)


def test_conv_that_reads_padding_alone():
    """The strides step over the only column of the input: its gradient is zero."""
    attrs = {"group": 2, "strides": [3, 2], "pads": [1, 3, 3, 1], "dilations": [3, 2]}
    check_gradients(conv_model((3, 4, 4, 1), (6, 2, 2, 1), **attrs), nonzero=False)


@pytest.mark.parametrize("stride", [1, 2])
def test_conv_of_a_concatenation(stride):
    """Each part has a gradient of its own: that of the whole is never made."""
    rng = np.random.default_rng(0)
    maker = ModelMaker(dtype="float64")
    parts = [maker.weight(f"x{c}", rng.normal(size=(2, c, 5, 4))) for c in (3, 1, 2)]
    w = maker.weight("w", rng.normal(size=(4, 6, 3, 3)))
    joined = maker.node("Concat", parts, axis=1)
    y = maker.node("Conv", [joined, w], pads=[1, 1, 1, 0], strides=[stride, stride])
    run = check_gradients(maker.model(y))
    calls = [e for e in post_order([run.step.function.body]) if isinstance(e, relay.Call)]
    assert [e.op.name for e in calls if shape_of(e) == (2, 6, 5, 4)] == ["concatenate"]
