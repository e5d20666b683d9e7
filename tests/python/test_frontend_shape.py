"""Ops that move data: forward against ONNX's evaluator, gradients against finite differences."""

import numpy as np
import pytest
from onnx_models import ModelMaker, check_gradients
from test_autodiff import model_of, normal, positive, spaced

I = np.array  # noqa: E741
CASES = [
    ("Where", [I([[True], [False], [True]]), normal(3, 4), normal(4)], {}),
    ("Max", [spaced(3, 4), spaced(3, 4) + 0.013, I([0.0])], {}),
    ("Min", [spaced(3, 4), spaced(3, 4) + 0.013], {}),
    ("Mean", [normal(3, 4), normal(4), normal(1, 1)], {}),
    ("ReduceL1", [spaced(3, 4, 2), I([1])], {}),
    ("ReduceL2", [normal(3, 4, 2), I([1])], {}),
    ("ReduceSumSquare", [normal(3, 4, 2), I([0, 2])], {"keepdims": 0}),
    ("ReduceLogSum", [positive(3, 4, 2), I([1])], {"keepdims": 0}),
    ("Pad", [normal(3, 4), I([1, 0, 2, 1])], {"mode": "edge"}),
    ("Pad", [normal(3, 4), I([1, 0, 2, 3])], {"mode": "reflect"}),
    ("Expand", [normal(3, 1), I([2, 1, 4])], {}),
    ("Tile", [normal(3, 2), I([2, 3])], {}),
    ("Slice", [normal(7, 5), I([1, -1]), I([6, -9]), I([0, 1]), I([2, -2])], {}),
    ("Slice", [normal(7, 5), I([-3]), I([1000]), I([-2])], {}),
    ("Slice", [normal(7, 5), I([4]), I([0]), I([1]), I([-1])], {}),
    ("Gather", [normal(5, 3), I([[0, 2], [-1, 2]])], {}),
    ("Gather", [normal(5, 3), I(-2)], {"axis": 1}),
    ("Gather", [normal(2, 5, 3), I([1, 1, 4])], {"axis": 1}),
    ("DepthToSpace", [normal(2, 8, 2, 3)], {"blocksize": 2, "mode": "DCR"}),
    ("DepthToSpace", [normal(2, 8, 2, 3)], {"blocksize": 2, "mode": "CRD"}),
    ("SpaceToDepth", [normal(2, 2, 4, 6)], {"blocksize": 2}),
    ("Trilu", [normal(2, 3, 4)], {"upper": 0}),
    ("Trilu", [normal(4, 3), I(-1)], {}),
]


@pytest.mark.parametrize(
    "op,operands,attrs", CASES, ids=[f"{c[0]}-{i}" for i, c in enumerate(CASES)]
)
def test_op(op, operands, attrs):
    check_gradients(model_of(op, operands, opset=20, **attrs))


def test_split():
    check_gradients(model_of("Split", [normal(3, 5), I([2, 3])], outputs=2, axis=1))


def test_negative_padding_crops():
    run = check_gradients(model_of("Pad", [normal(3, 4), I([1, -1, 2, 0])]), reference=False)
    got = run(target=np.zeros((6, 3)))["pad0"]
    np.testing.assert_array_equal(got, np.pad(run.state["p0"][:, 1:], [(1, 2), (0, 0)]))


RESIZE = {
    "nearest by whole numbers": ([1, 1, 2, 3], {"mode": "nearest", "nearest_mode": "floor"}),
    "linear": ([1, 1, 2, 2], {"mode": "linear"}),
    "cubic": ([1, 1, 1.5, 2], {"mode": "cubic", "cubic_coeff_a": -0.75}),
}


@pytest.mark.parametrize("name", RESIZE)
def test_resize_by_scales(name):
    scales, attrs = RESIZE[name]
    if attrs["mode"] == "nearest":
        attrs["coordinate_transformation_mode"] = "asymmetric"
    maker = ModelMaker(dtype="float64", opset=19)
    x = maker.weight("x", normal(2, 3, 4, 5))
    maker.weights["scales"] = np.array(scales, "float32")
    check_gradients(maker.model(maker.node("Resize", [x, "", "scales"], **attrs)))


def test_resize_to_sizes():
    maker = ModelMaker(dtype="float64", opset=19)
    x, sizes = maker.weight("x", normal(2, 3, 4, 5)), maker.weight("sizes", I([2, 3, 7, 3]))
    attrs = {"mode": "linear", "coordinate_transformation_mode": "align_corners"}
    check_gradients(maker.model(maker.node("Resize", [x, "", "", sizes], **attrs)))


def test_whole_number_upsampling_repeats():
    maker = ModelMaker(dtype="float64", opset=9)
    x = maker.weight("x", normal(1, 2, 2, 3))
    maker.weights["scales"] = np.array([1, 1, 2, 2], "float32")
    run = check_gradients(maker.model(maker.node("Upsample", [x, "scales"])), reference=False)
    got = run(target=np.zeros((1, 2, 4, 6)))["upsample0"]
    np.testing.assert_array_equal(got, run.state["x"].repeat(2, 2).repeat(2, 3))
    assert "nn.dense" not in run.step.function.astext(show_meta_data=False)
