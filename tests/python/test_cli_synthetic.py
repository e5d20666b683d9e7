"""Made-up inputs: seeded, of the right shapes, labels within the classes."""

from types import SimpleNamespace

import numpy as np
import pytest

from tvm_dtr.cli.synthetic import synthetic_inputs
from tvm_dtr.errors import UsageError
from tvm_dtr.training import TensorSpec


def program(*inputs):
    """What of a Program is read: its inputs."""
    return SimpleNamespace(inputs=[TensorSpec(*spec) for spec in inputs])


CLASSIFIER = program(("x", (500, 3), "float32"), ("labels", (500,), "int64", 7))


def test_labels_cover_the_classes_and_floats_are_normal():
    inputs = synthetic_inputs(CLASSIFIER, seed=1)
    assert sorted(set(inputs["labels"])) == list(range(7))
    assert (inputs["x"].dtype, inputs["x"].shape) == (np.float32, (500, 3))
    assert abs(inputs["x"].mean()) < 0.1 and abs(inputs["x"].std() - 1) < 0.1


def test_the_seed_decides():
    first, again, other = (synthetic_inputs(CLASSIFIER, seed) for seed in (1, 1, 2))
    assert all(np.array_equal(first[name], again[name]) for name in ("x", "labels"))
    assert not np.array_equal(first["labels"], other["labels"])


def test_other_types():
    inputs = synthetic_inputs(program(("ids", (99,), "int32"), ("mask", (99,), "bool")), seed=0)
    assert set(inputs["ids"]) == {0, 1} and set(inputs["mask"]) == {False, True}
    with pytest.raises(UsageError, match="input 'z' of type complex64 cannot be made up"):
        synthetic_inputs(program(("z", (4,), "complex64")), seed=0)


def test_a_tree_is_a_tree():
    nodes = program(
        ("x", ("nodes", 3), "float32"),
        ("left", ("nodes",), "int64"),
        ("right", ("nodes",), "int64"),
        ("root", (), "int64"),
    )
    nodes.control_flow = True
    for step in range(6):
        inputs = synthetic_inputs(nodes, seed=0, step=step, lengths={"nodes": (1, 12)})
        left, right = inputs["left"], inputs["right"]
        assert len(inputs["x"]) == len(left) == len(right)
        below, seen = [int(inputs["root"])], set()
        while below:
            node = below.pop()
            assert node not in seen
            seen.add(node)
            if left[node] >= 0:
                below += [int(left[node]), int(right[node])]
        assert len(seen) == (len(left) - 1) // 2 * 2 + 1
