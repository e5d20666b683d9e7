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
