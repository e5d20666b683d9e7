"""docs/operators.md lists what is registered."""

import subprocess
import sys
from pathlib import Path

from tvm_dtr.frontend import CONVERTERS
from tvm_dtr.frontend.limits import LIMITS

SCRIPT = Path(__file__).parents[2] / "docs" / "operator_reference.py"


def test_the_tables_are_current():
    check = subprocess.run([sys.executable, SCRIPT, "--check"], capture_output=True, check=False)
    assert check.returncode == 0, "run 'python docs/operator_reference.py'"


def test_limits_are_of_ops_that_exist():
    assert set(LIMITS) <= set(CONVERTERS)
