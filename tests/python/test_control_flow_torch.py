"""Branches, loops, scans and the models made of them against PyTorch's float64, over run-time
lengths of 0, 1, 2, 17 and 100: tests/data/make_control_flow_goldens.py."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import flow_models
import numpy as np
import onnx
import pytest

import tvm_dtr
from tvm_dtr import models

GOLDENS = np.load(Path(__file__).parents[1] / "data" / "torch_control_flow.npz")
ROWS = {"x": ("time", flow_models.BATCH, flow_models.WIDTH)}
SMALL = {"batch": 2, "seed": 0, "features": 4, "width": 6, "classes": 3}


def values(prefix: str) -> dict[str, np.ndarray]:
    return {k[len(prefix) :]: GOLDENS[k] for k in GOLDENS.files if k.startswith(prefix)}


def check(program: tvm_dtr.Program, case: str, steps: Iterable[int]) -> None:
    """Losses, outputs and gradients of these batches within 1e-4 of PyTorch's."""
    dtypes = {spec.name: spec.dtype for spec in [*program.inputs, *program.state]}
    weights = {n: v.astype(dtypes[n]) for n, v in values(f"{case}/weight/").items()}
    assert set(weights) == set(program.parameter_names)
    vm = tvm_dtr.VirtualMachine(program)
    vm.set_parameters(weights)
    for step in steps:
        given = values(f"{case}/{step}/input/")
        results = vm.step(**{n: v.astype(dtypes[n]) for n, v in given.items()})
        expected = values(f"{case}/{step}/expected/")
        assert len(expected) > len(weights)
        for name, value in expected.items():
            assert results[name].shape == value.shape, (case, step, name)
            largest = np.abs(value).max(initial=0)
            off = np.abs(results[name] - value).max(initial=0)
            assert off <= 1e-4 * max(largest, 1e-2), (case, step, name)


def every(case: str) -> list[int]:
    return [n for n in range(20) if f"{case}/{n}/expected/loss" in GOLDENS.files]


def construct(model: onnx.ModelProto, open_rows: bool = True) -> tvm_dtr.Program:
    return tvm_dtr.build(model, loss="mse", shapes=ROWS if open_rows else None)


def test_loop_with_a_trip_count_and_rows_out() -> None:
    check(construct(flow_models.rnn()), "loop", every("loop"))


def test_loop_with_a_condition() -> None:
    model = flow_models.rnn(count=False, condition=True, scans=False)
    check(construct(model), "loop_condition", every("loop_condition"))


def test_loop_with_both() -> None:
    check(construct(flow_models.rnn(condition=True)), "loop_both", every("loop_both"))


def test_both_arms_of_a_branch() -> None:
    check(construct(flow_models.branch(), open_rows=False), "branch", every("branch"))


def test_loop_in_a_loop_with_a_branch() -> None:
    check(construct(flow_models.nested(), open_rows=False), "nested", every("nested"))


@pytest.mark.parametrize("case", ["lstm", "gru"])
def test_recurrent_networks(case: str) -> None:
    builder = {"lstm": models.lstm_loop, "gru": models.gru_loop}[case]
    check(tvm_dtr.build(builder(**SMALL), loss="cross_entropy"), case, every(case))


def test_tree_lstm() -> None:
    check(tvm_dtr.build(models.tree_lstm(**SMALL), loss="cross_entropy"), "tree", every("tree"))


def test_unrolled_gan() -> None:
    model = models.unrolled_gan(batch=3, seed=0, noise=4, width=6, features=5)
    check(tvm_dtr.build(model, loss="output"), "gan", every("gan"))


def test_both_exits_of_an_early_exit() -> None:
    sizes = {"features": 6, "width": 8, "layers": 2, "classes": 3}
    model = models.early_exit(batch=2, seed=0, sure=0.5, **sizes)
    check(tvm_dtr.build(model, loss="cross_entropy"), "early_exit", every("early_exit"))


# Of the lengths 1, 2, 17 and 100: each is built for, as the rows meet other ops.
SCANNED = [1, 2]


def test_scan_in_both_directions() -> None:
    program = construct(flow_models.scan())
    assert program.names == ("time",)
    check(program, "scan", SCANNED)


def test_scan_language_model() -> None:
    """Of 17 positions."""
    model = models.scan_language_model(batch=2, seed=0, context=17, width=6, vocabulary=8)
    check(tvm_dtr.build(model, loss="cross_entropy"), "language_model", [2])
