"""The stock VM as the reference, and the telling of differences."""

import io
import json
import os
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from tvm_dtr.verify import StockVM, describe_difference, digest, labelled, serve

os.environ.setdefault("TOPHUB_LOCATION", "NONE")


@dataclass
class Spec:
    name: str
    dtype: str = "float32"
    default: float | None = None


@dataclass
class Outcome:
    name: str
    kind: str


@dataclass
class Counter:
    """A program whose state grows by its input and whose output is the doubled old state."""

    executable: Any
    inputs: list = field(default_factory=lambda: [Spec("x")])
    state: list = field(default_factory=lambda: [Spec("total")])
    results: list = field(
        default_factory=lambda: [Outcome("doubled", "output"), Outcome("total", "state")]
    )
    initial_state: dict = field(default_factory=lambda: {"total": np.float32([1, 2])})


@pytest.fixture(scope="module")
def counter():
    from tvm import IRModule, relay

    x, total = (relay.var(name, shape=(2,)) for name in ("x", "total"))
    body = relay.Tuple([total + total, total + x])
    module = IRModule.from_expr(relay.Function([x, total], body))
    return Counter(relay.vm.compile(module, "llvm"))


def test_the_stock_vm_carries_state_from_step_to_step(counter):
    vm = StockVM(counter)
    x = np.float32([1, 10])
    assert vm.step(x=x)["doubled"].tolist() == [2, 4]
    assert vm.step(x=x)["doubled"].tolist() == [4, 24]
    assert vm.parameters["total"].tolist() == [3, 22]
    assert counter.initial_state["total"].tolist() == [1, 2]


def test_serving_answers_with_digests_and_saves_tensors(counter, tmp_path):
    inputs, saved = str(tmp_path / "in.npz"), str(tmp_path / "total.npy")
    np.savez(inputs, np.float32([1, 10]))
    requests = [
        json.dumps({"step": inputs}),
        json.dumps({"step": inputs}),
        json.dumps({"save": "state total", "to": saved}),
    ]
    answers = io.StringIO()
    serve(counter, requests, answers)
    lines = [json.loads(line) for line in answers.getvalue().splitlines()]
    assert lines[0] == {
        "output doubled": digest(np.float32([2, 4])),
        "state total": digest(np.float32([2, 12])),
    }
    assert lines[1]["state total"] == digest(np.float32([3, 22]))
    assert lines[2] == {"saved": saved}
    assert np.load(saved).tolist() == [3, 22]


def test_digests_tell_bits_types_and_shapes_apart():
    base = np.float32([0.0, np.nan])
    assert digest(base) == digest(base.copy())
    assert digest(base) == digest(np.float32([[0.0], [np.nan]])[:, 0])  # layout does not matter
    others = [np.float32([-0.0, np.nan]), base.astype("float64"), base.reshape(2, 1)]
    assert len({digest(array) for array in [base, *others]}) == 4


def test_a_difference_names_index_values_and_count():
    ours = np.arange(6, dtype="float32").reshape(2, 3)
    stock = ours.copy()
    stock[1, 0] = 9
    stock[1, 2] = 8
    assert describe_difference(ours, stock) == (
        "first at [1, 0]: 3.0, stock VM 9.0 (2 of 6 elements differ)"
    )
    assert describe_difference(ours, ours.copy()) == "equal"
    assert describe_difference(ours, stock[0]) == "float32[2, 3], stock VM float32[3]"
    scalars = np.float32(0.0), np.float32(-0.0)
    assert describe_difference(*map(np.asarray, scalars)) == (
        "first at []: 0.0, stock VM -0.0 (1 of 1 elements differ)"
    )


def test_outputs_and_state_of_one_name_stay_apart():
    tensors = labelled({"loss": np.float32(1)}, {"loss": np.float32(2)})
    assert {name: float(value) for name, value in tensors.items()} == {
        "output loss": 1.0,
        "state loss": 2.0,
    }
