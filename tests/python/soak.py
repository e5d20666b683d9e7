"""Random programs under random budgets, against TVM's own VM: bit for bit, within the budget, all
invariants checked.

    python tests/python/soak.py --programs 1000 --cases 100 --state soak.json [--seconds N]

Goes on where the state file ends; --seconds: begins no program after so many. Exit
status 1 and the seeds if anything differed.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import tvm
from random_control_flow import RandomModule, from_seed
from relay_programs import assert_same, compile_module, from_file

from tvm_dtr import _core
from tvm_dtr.errors import BudgetError
from tvm_dtr.plugin import load_plugin
from tvm_dtr.vm import VirtualMachine


@dataclass
class Totals:
    """What was run: counts of programs, cases, ops by kind and what happened to them."""

    programs: int = 0
    cases: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)

    def table(self) -> str:
        """Markdown: how much of what, per case where that says more."""
        rows = [("programs", self.programs), ("cases (program, budget, policy)", self.cases)]
        rows += sorted(self.counts.items())
        rows.append(("failures", len(self.failures)))
        lines = ["| what | count | per case |", "| --- | ---: | ---: |"]
        lines += [f"| {name} | {n} | {n / max(1, self.cases):.2f} |" for name, n in rows]
        return "\n".join(lines)


class Subject:
    """One program: compiled once, with TVM's own results, the peak and the smallest budget."""

    def __init__(self, random_module: RandomModule, folder: str) -> None:
        load_plugin()
        self.inputs = random_module.inputs
        compiled = compile_module(random_module.module)
        self.executable = from_file(compiled, str(Path(folder) / "kernels.so"))
        tvm.get_global_func("tvm_dtr.repair_lifetimes")(self.executable.mod)
        stock = tvm.runtime.vm.VirtualMachine(self.executable, tvm.cpu())
        self.expected = stock.invoke("main", *self.inputs)
        vm = VirtualMachine(self.executable)
        assert_same(vm.invoke("main", *self.inputs), self.expected)
        self.peak = int(vm.counters()["peak_active_bytes"])

    def run(self, budget: int, policy: str, seed: int) -> dict[str, int]:
        """One case; where the budget is too small it is raised to what the refusal asks for.

        Raises:
            AssertionError: a result, the budget or what is left behind is not as it must be.
        """
        vm = VirtualMachine(
            self.executable, memory_budget=budget, policy=policy, seed=seed, thrash_limit=0
        )
        raised = 0
        vm.set_input("main", *self.inputs)
        while True:
            try:
                result = vm.resume() if raised else vm.invoke("main")
                break
            except BudgetError as error:
                vm.validate()
                raised += 1
                assert raised < 500, "the budgets that refusals ask for never suffice"
                vm.set_budget(error.needed_budget_bytes)
        assert_same(result, self.expected)
        vm.validate()
        counters = vm.counters()
        assert counters["peak_mapped_bytes"] <= counters["budget_bytes"], "over the budget"
        assert counters["live_ops"] == 0, "records were left behind"
        names = ("evictions", "rematerializations")
        return {"budget raised": raised, **{name: int(counters[name]) for name in names}}


def soak_program(seed: int, cases: int, totals: Totals) -> None:
    """Runs one random program under ``cases`` random budgets and policies."""
    random_module = from_seed(seed)
    policies = sorted(_core.policies())
    rng = np.random.default_rng((seed, 1))
    with tempfile.TemporaryDirectory() as folder:
        subject = Subject(random_module, folder)
        for case in range(cases):
            budget = int(subject.peak * rng.uniform(0.15, 1.0))
            policy = policies[rng.integers(0, len(policies))]
            name = f"seed {seed}, case {case}, budget {budget}, {policy}"
            try:
                happened = subject.run(budget, policy, seed=case)
            except Exception as error:
                totals.failures.append(f"{name}: {error!r}")
                continue
            totals.cases += 1
            totals.counts.update(happened)
            totals.counts["cases with rematerialization"] += happened["rematerializations"] > 0
    totals.programs += 1
    totals.counts.update({f"ops made by {kind}": n for kind, n in random_module.kinds.items()})
    totals.counts["nesting, levels"] += random_module.depth


def _load(path: Path) -> tuple[int, Totals]:
    if not path.exists():
        return 0, Totals()
    state: dict[str, Any] = json.loads(path.read_text())
    totals = Totals(state["programs"], state["cases"], Counter(state["counts"]), state["failures"])
    return state["next_seed"], totals


def _save(path: Path, next_seed: int, totals: Totals) -> None:
    fresh = path.with_suffix(".part")
    fresh.write_text(json.dumps({"next_seed": next_seed, **vars(totals)}))
    os.replace(fresh, path)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--programs", type=int, default=1000, help="random programs in all")
    parser.add_argument("--cases", type=int, default=100, help="budgets and policies for each")
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=float("inf"))
    parser.add_argument("--state", type=Path, default=Path("soak.json"))
    options = parser.parse_args()
    done, totals = _load(options.state)
    began = time.monotonic()
    for seed in range(max(done, options.first_seed), options.first_seed + options.programs):
        if time.monotonic() - began > options.seconds:
            break
        print(f"seed {seed}: {totals.cases} cases, {len(totals.failures)} failures", flush=True)
        soak_program(seed, options.cases, totals)
        _save(options.state, seed + 1, totals)
    print(totals.table())
    print("\n".join(totals.failures))
    return bool(totals.failures)


if __name__ == "__main__":
    sys.exit(main())
