"""What errors carry."""

import pytest

from tvm_dtr.errors import BudgetError


@pytest.mark.parametrize(("details", "op"), [({}, None), ({"op": ""}, None), ({"op": "k"}, "k")])
def test_a_budget_error_names_a_kernel_or_none(details, op):
    assert BudgetError("no", **details).op == op
