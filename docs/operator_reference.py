"""Writes the tables of operators.md: the ops that the importer registers, and the node tests.

    python docs/operator_reference.py [--check]

``--check`` changes nothing and fails if the page is not current.
"""

import json
import re
import sys
from collections import defaultdict
from pathlib import Path

from tvm_dtr.frontend import CONVERTERS
from tvm_dtr.frontend.limits import LIMITS

HERE = Path(__file__).resolve().parent
PAGE = HERE / "operators.md"
NODE_TESTS = HERE.parent / "benchmarks" / "results" / "onnx_node_tests.json"


def operators() -> str:
    families = defaultdict(list)
    for op, convert in CONVERTERS.items():
        families[convert.__module__.rpartition(".")[2].replace("_", " ")].append(op)
    lines = [f"{len(CONVERTERS)} ops.", "", "| op | family | limits |", "|---|---|---|"]
    for family in sorted(families):
        for op in sorted(families[family]):
            lines.append(f"| {op} | {family} | {LIMITS.get(op, '')} |")
    return "\n".join(lines)


def node_tests() -> str:
    rows = json.loads(NODE_TESTS.read_text())["rows"]
    by_op = defaultdict(list)
    for row in rows:
        by_op[row["op"]].append(row["result"] == "ok")
    good = sum(map(sum, by_op.values()))
    lines = [f"{good} of {len(rows)} agree.", "", "| op | agree | of |", "|---|--:|--:|"]
    lines += [f"| {op} | {sum(all_)} | {len(all_)} |" for op, all_ in sorted(by_op.items())]
    lines += ["", "| test that does not | cause |", "|---|---|"]
    lines += [f"| {r['test']} | {r['cause']} |" for r in rows if r["result"] != "ok"]
    return "\n".join(lines)


def main() -> int:
    page = PAGE.read_text(encoding="utf-8")
    new = page
    for name, table in (("operators", operators()), ("node tests", node_tests())):
        pattern = rf"(<!-- {name} -->\n).*?(\n<!-- end -->)"
        new = re.sub(pattern, lambda m, t=table: m[1] + t + m[2], new, count=1, flags=re.S)
    if "--check" in sys.argv:
        return int(new != page)
    PAGE.write_text(new, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
