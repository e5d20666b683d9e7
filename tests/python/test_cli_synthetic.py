"""Made-up inputs: seeded, of the right shapes, labels within the classes."""

from types import SimpleNamespace

import numpy as np
import pytest

from tvm_dtr.cli.synthetic import class_count, synthetic_inputs
from tvm_dtr.compile.opgraph import OpGraph, TensorInfo
from tvm_dtr.errors import UsageError
from tvm_dtr.training import Result, TensorSpec


def program(inputs, results):
    """What of a Program is read: its inputs, and the names and shapes of its results."""
    tensors = [TensorInfo(i, shape, "float32", -1) for i, (_, shape) in enumerate(results)]
    return SimpleNamespace(
        inputs=[TensorSpec(*spec) for spec in inputs],
        results=[Result(name, "output") for name, _ in results],
        graph=OpGraph(tensors=tensors, results=list(range(len(results)))),
    )


CLASSIFIER = program(
    [("x", (500, 3), "float32"), ("labels", (500,), "int64")], [("loss", ()), ("y", (500, 7))]
)


def test_labels_cover_the_classes_and_floats_are_normal():
    inputs = synthetic_inputs(CLASSIFIER, seed=1)
    assert sorted(set(inputs["labels"])) == list(range(7))
    assert (inputs["x"].dtype, inputs["x"].shape) == (np.float32, (500, 3))
    assert abs(inputs["x"].mean()) < 0.1 and abs(inputs["x"].std() - 1) < 0.1


def test_the_seed_decides():
    first, again, other = (synthetic_inputs(CLASSIFIER, seed) for seed in (1, 1, 2))
    assert all(np.array_equal(first[name], again[name]) for name in ("x", "labels"))
    assert not np.array_equal(first["labels"], other["labels"])


@pytest.mark.parametrize("logits", [(4, 5, 8, 8), (4, 8, 8, 5)])
def test_the_class_axis_may_be_anywhere(logits):
    assert class_count(program([], [("loss", ()), ("y", logits)]), (4, 8, 8)) == 5


def test_other_types_and_unknown_classes():
    mixed = program([("ids", (99,), "int32"), ("mask", (99,), "bool")], [("loss", ())])
    inputs = synthetic_inputs(mixed, seed=0)
    assert set(inputs["ids"]) == {0, 1} and set(inputs["mask"]) == {False, True}
    with pytest.raises(UsageError, match="the number of classes is not known"):
        synthetic_inputs(program([("labels", (4,), "int64")], [("loss", ())]), seed=0)
    with pytest.raises(UsageError, match="input 'z' of type complex64 cannot be made up"):
        synthetic_inputs(program([("z", (4,), "complex64")], []), seed=0)
