"""The budget as the operating system sees it: benchmarks/resident_set.py on a small model."""

import importlib.util
from pathlib import Path

import pytest

from tvm_dtr.models.mlp import mlp

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "resident_set.py"


@pytest.fixture(scope="module")
def resident_set():
    spec = importlib.util.spec_from_file_location("resident_set", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def program(resident_set, tmp_path_factory):
    """Tensors of 4 MiB that cost little to compute."""
    path = tmp_path_factory.mktemp("program") / "mlp.tdtr"
    model = mlp(batch=32768, seed=0, features=32, width=32, hidden_layers=8)
    resident_set.build(model, path)
    return path


@pytest.mark.parametrize("arena", ["paged", "best-fit"])
def test_the_resident_set_grows_by_no_more_than_the_budget(resident_set, program, arena):
    control, tight = resident_set.measure(program, ["60%"], steps=8, arena=arena)
    assert control["ok"] and tight["ok"]
    assert tight["evictions"] > 0
    # Without the budget the same steps take far more than what is allowed beside it.
    saved = control["growth_bytes"] - tight["growth_bytes"]
    assert saved > 2 * resident_set.ALLOWED_BYTES
