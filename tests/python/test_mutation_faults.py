"""tests/mutation/faults.py: each fault can still be made, so that the list does not rot."""

import runpy
from pathlib import Path

ROOT = Path(__file__).parents[2]


def faults():
    return runpy.run_path(str(ROOT / "tests" / "mutation" / "faults.py"))["FAULTS"]


def test_each_fault_has_its_place_and_its_tests():
    assert len(faults()) >= 30
    for fault in faults():
        assert (ROOT / fault.file).read_text().count(fault.before) == 1, fault.what
        assert fault.before != fault.after, fault.what
        for name in fault.tests:
            assert (ROOT / "tests" / "python" / name).is_file(), (fault.what, name)
