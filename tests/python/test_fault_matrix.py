"""docs/fault-matrix.md is what tests/faults/matrix.py finds, in its quick part."""

import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tests" / "faults"))

import matrix  # noqa: E402
from outcome import Outcome  # noqa: E402


def test_the_page_says_what_becomes_of_faults():
    rows = matrix.outcomes(quick=True)
    assert {row.fault.partition(":")[0] for row in rows} >= {"costs", "a full disk"}
    assert matrix.missing(rows) == []


def test_another_outcome_is_told():
    other = Outcome("a full disk", "results (`--json`)", 5, "nothing", "-")
    assert matrix.missing([other]) == [other.line()]
