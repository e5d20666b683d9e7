"""Labels are checked against the classes; the rest of the checks is in test_vm.py."""

import numpy as np
import pytest

from tvm_dtr.errors import InputError
from tvm_dtr.losses import make_loss
from tvm_dtr.relay_graph import infer_local
from tvm_dtr.step_inputs import check_inputs
from tvm_dtr.training import TensorSpec


@pytest.mark.parametrize("wrong", [-1, 5])
def test_a_label_outside_of_the_classes_is_refused(wrong):
    specs = [TensorSpec("labels", (3,), "int64", 5)]
    assert list(check_inputs(specs, {"labels": [0, 4, 2]})["labels"]) == [0, 4, 2]
    with pytest.raises(InputError, match="input 'labels': expected values 0 to 4, got"):
        check_inputs(specs, {"labels": [0, wrong, 2]})


@pytest.mark.parametrize(("logits", "classes"), [((4, 7), 7), ((4, 5, 8, 6), 5), ((3,), 3)])
def test_cross_entropy_tells_the_classes(logits, classes):
    from tvm import relay

    loss = make_loss("cross_entropy", [("y", infer_local(relay.var("y", shape=logits)))])
    assert loss.input.classes == classes
    assert np.prod(loss.input.shape) * classes == np.prod(logits)


TREE = {"root": np.int64(0), "left": np.array([1, -1, -1]), "right": np.array([2, -1, -1])}


def check_tree(**changed):
    specs = [TensorSpec("root", (), "int64", children=("left", "right"))]
    specs += [TensorSpec(side, ("nodes",), "int64") for side in ("left", "right")]
    return check_inputs(specs, TREE | changed)


def test_a_tree_is_taken():
    assert check_tree()["left"][0] == 1
    leaf = check_tree(root=np.int64(2), left=np.array([0, 0, -1]))  # what is above does not matter
    assert leaf["root"] == 2


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"left": np.array([0, -1, -1])}, "no tree: node 0 is reached from the root 0 more than"),
        (
            {"left": np.array([1, 0, -1]), "right": np.array([2, 0, -1])},
            "no tree: node 0 is reached from the root 0 more than once",
        ),
        ({"right": np.array([1, -1, -1])}, "no tree: node 1 is reached"),
        ({"right": np.array([3, -1, -1])}, r"input 'right\[0\]': node 3 is none of the tree's 3"),
        ({"right": np.array([-1, -1, -1])}, r"input 'right\[0\]': node -1 is none of the"),
        ({"root": np.int64(-1)}, "input 'root': node -1 is none of the tree's 3 nodes"),
    ],
    ids=["itself", "cycle", "shared", "outside", "one child", "root"],
)
def test_what_is_no_tree_is_refused(changed, message):
    with pytest.raises(InputError, match=message):
        check_tree(**changed)
