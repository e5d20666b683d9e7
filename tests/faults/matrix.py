"""Makes each fault at each place and writes down what becomes of it: docs/fault-matrix.md.

    PYTHONPATH=tests/faults:tests/python python tests/faults/matrix.py [--check | --print]

Exit status 1 if an outcome is not as it must be, or (--check) not what the page says.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import files
import processes
import steps
from outcome import Outcome

PAGE = Path(__file__).resolve().parents[2] / "docs" / "fault-matrix.md"
COLUMNS = ("fault", "place", "tries", "what is raised", "afterwards", "files")


@dataclass(frozen=True)
class Group:
    """Cases of one kind. quick: cheap enough for each run of the tests."""

    cases: Callable[[Path], Iterator[Outcome]]
    quick: bool = True


GROUPS = (
    Group(steps.budgets),
    Group(steps.costs),
    Group(files.full_disk),
    Group(processes.clocks, quick=False),
    Group(processes.signals, quick=False),
)


def outcomes(quick: bool) -> list[Outcome]:
    """Of every case, or of those that are cheap; each is asserted to be as it must."""
    found = []
    for group in GROUPS:
        if quick and not group.quick:
            continue
        with tempfile.TemporaryDirectory() as folder:
            found += list(group.cases(Path(folder)))
    return found


def table(rows: list[Outcome]) -> str:
    lines = ["| " + " | ".join(COLUMNS) + " |", "| " + " | ".join("---" for _ in COLUMNS) + " |"]
    return "\n".join([*lines, *(row.line() for row in rows)]) + "\n"


def page() -> str:
    return PAGE.read_text(encoding="utf-8")


def missing(rows: list[Outcome]) -> list[str]:
    """The lines that the page does not have."""
    there = set(page().splitlines())
    return [row.line() for row in rows if row.line() not in there]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="compare the quick part with the page")
    parser.add_argument("--print", action="store_true", help="to the terminal, the page stays")
    options = parser.parse_args()
    rows = outcomes(quick=options.check)
    if options.check:
        lacking = missing(rows)
        print("\n".join(lacking))
        return bool(lacking)
    if options.print:
        print(table(rows))
        return 0
    begin, end = "<!-- faults -->\n", "<!-- end of faults -->"
    head, _, rest = page().partition(begin)
    PAGE.write_text(head + begin + table(rows) + end + rest.partition(end)[2], encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
