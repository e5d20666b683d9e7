"""Many random cases of every operator: values, and gradients against finite differences.

    python benchmarks/gradient_sweep.py [--draws 10] [OP ...]

The cases are those of tests/python/op_cases.py, float64, to a relative error of 1e-6. Writes
results/gradient_sweep.json and .md: per op how many cases were drawn, and the seeds of those that
failed. Rows of ops that are not run stay as they are.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "python"))

from onnx_models import check_gradients  # noqa: E402
from op_cases import CASES, Draw  # noqa: E402


def failures(name: str, draws: int) -> list[dict]:
    found = []
    for seed in range(draws):
        case = CASES[name](Draw(seed))
        try:
            check_gradients(case.model(), reference=case.reference, nonzero=False)
        except Exception as error:
            text = " ".join(str(error).split())[:300]
            found.append({"seed": seed, "attributes": str(case.attrs), "error": text})
            print(f"{name} seed {seed} {case.attrs}: {text}", flush=True)
    return found


def write(new: list[dict]) -> None:
    path = ROOT / "benchmarks" / "results" / "gradient_sweep.json"
    old = json.loads(path.read_text())["rows"] if path.exists() else []
    rows = sorted(({r["op"]: r for r in [*old, *new]}).values(), key=lambda r: r["op"])
    path.write_text(json.dumps({"rows": rows}, indent=1) + "\n")
    drawn, failed = sum(r["cases"] for r in rows), sum(len(r["failed"]) for r in rows)
    lines = [
        f"{drawn - failed} of {drawn} random cases of {len(rows)} kinds agree: float64, relative "
        "error of the directional derivative at most 1e-6.",
        "",
        "| case | drawn | failed |",
        "|---|--:|--:|",
        *(f"| {r['op']} | {r['cases']} | {len(r['failed'])} |" for r in rows),
    ]
    path.with_suffix(".md").write_text("\n".join(lines) + "\n")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("ops", nargs="*", metavar="OP", help="default: all")
    parser.add_argument("--draws", type=int, default=10)
    arguments = parser.parse_args()
    rows = []
    for name in arguments.ops or CASES:
        failed = failures(name, arguments.draws)
        rows.append({"op": name, "cases": arguments.draws, "failed": failed})
        write(rows)
    count = sum(len(row["failed"]) for row in rows)
    print(f"{len(rows) * arguments.draws - count} of {len(rows) * arguments.draws} agree")
    return int(count > 0)


if __name__ == "__main__":
    sys.exit(main())
