"""Every op with random operands and attributes: values and gradients in float64."""

import os

import pytest
from onnx_models import check_gradients
from op_cases import CASES, Draw

from tvm_dtr.frontend import CONVERTERS
from tvm_dtr.frontend.limits import NOT_DIFFERENTIABLE

DRAWS = int(os.environ.get("TVM_DTR_DRAWS", "1"))  # benchmarks/gradient_sweep.py takes more
CONTROL_FLOW = {"If", "Loop", "Scan", "TreeFold", "Shape", "Size"}
SEQUENCES = {name for name in CONVERTERS if "Sequence" in name}  # test_frontend_sequences.py
ELSEWHERE = {"Cast", "CastLike", "Scatter"} | CONTROL_FLOW | SEQUENCES


@pytest.mark.parametrize("seed", range(DRAWS))
@pytest.mark.parametrize("name", CASES)
def test_gradient(name, seed):
    case = CASES[name](Draw(seed))
    check_gradients(case.model(), reference=case.reference, nonzero=False)


def test_every_op_has_a_case():
    drawn = {CASES[name](Draw(0)).op for name in CASES}
    assert set(CONVERTERS) - NOT_DIFFERENTIABLE - ELSEWHERE <= drawn
