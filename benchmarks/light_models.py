"""The networks that ship inside the onnx package train a step at batch 1 within a budget.

Their weights are ConstantOfShape nodes; they get random values. The budget is halfway between the
smallest that works and the peak without one. Every output, parameter and statistic is compared bit
by bit with the same step without a budget.

  python benchmarks/light_models.py [squeezenet ...] [-o benchmarks/results/light_models]
"""

from __future__ import annotations

import argparse
import gc
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from budgets import smallest_budget

import tvm_dtr
from tvm_dtr.cli.files import replacing, write_rows
from tvm_dtr.cli.synthetic import synthetic_inputs

DATA = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"


def random_values(program: Any, seed: int = 0) -> dict[str, np.ndarray]:
    """Weights of variance 2 / fan-in (He et al., 2015), scales about one, small biases."""
    rng = np.random.default_rng(seed)
    values = {}
    for name in program.parameter_names:
        shape, dtype = program.initial_state[name].shape, program.initial_state[name].dtype
        data = rng.standard_normal(shape, "float32")
        fan_in = int(np.prod(shape[1:]))
        scaled = data * np.sqrt(2 / fan_in) if fan_in > 1 else 1 + 0.1 * data
        values[name] = scaled.astype(dtype)
    return values


def step(program: Any, budget: int | None, values: dict, inputs: dict) -> tuple[Any, dict, float]:
    vm = tvm_dtr.VirtualMachine(program, memory_budget=budget)
    vm.set_parameters(values)
    start = time.perf_counter()
    outputs = vm.step(**inputs)
    seconds = time.perf_counter() - start
    results = {**outputs, **{f"state:{name}": vm.parameters[name] for name in vm.parameters}}
    return vm.stats, results, seconds


def measure(name: str) -> dict[str, Any]:
    start = time.perf_counter()
    program = tvm_dtr.build(
        DATA / f"light_{name}.onnx", loss="cross_entropy", optimizer=tvm_dtr.SGD(0.001)
    )
    row: dict[str, Any] = {"model": name, "build_seconds": time.perf_counter() - start}
    inputs, values = synthetic_inputs(program, seed=0), random_values(program)
    stats, free, seconds = step(program, None, values, inputs)
    peak, smallest = stats["unbudgeted_peak_bytes"], smallest_budget(program)
    budget = (peak + smallest) // 2
    stats, held, budgeted = step(program, budget, values, inputs)
    row.update(
        parameters=sum(v.size for v in values.values()),
        ops=len(program.graph.ops),
        unbudgeted_peak_bytes=peak,
        smallest_budget_bytes=smallest,
        budget_bytes=budget,
        peak_bytes=stats["peak_bytes"],
        rematerializations=stats["rematerializations"],
        loss=float(held["loss"]),
        slowdown=budgeted / seconds,
        bitwise=all(np.array_equal(free[k], held[k], equal_nan=True) for k in free),
        finite=all(bool(np.isfinite(v).all()) for v in held.values()),
    )
    return row


def as_markdown(rows: list[dict[str, Any]]) -> str:
    head = (
        "| model | parameters | ops | peak | smallest | budget | held | remat. | bitwise | finite |"
    )
    lines = [head, "|---|--:|--:|--:|--:|--:|--:|--:|---|---|"]
    for r in rows:
        sizes = ("unbudgeted_peak", "smallest_budget", "budget", "peak")
        mib = " | ".join(f"{r[f'{k}_bytes'] / 2**20:.1f}" for k in sizes)
        lines.append(
            f"| {r['model']} | {r['parameters'] / 1e6:.1f} M | {r['ops']} | {mib} | "
            f"{r['rematerializations']} | {r['bitwise']} | {r['finite']} |"
        )
    return (
        "\n".join([*lines, "", "Sizes in MiB; one step at batch 1 of 224x224 images, SGD."]) + "\n"
    )


def main() -> None:
    known = sorted(p.stem.removeprefix("light_") for p in DATA.glob("light_*.onnx"))
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="*", choices=[*known, []], help="default: all nine")
    parser.add_argument("-o", "--output", default="benchmarks/results/light_models")
    arguments = parser.parse_args()
    path = Path(arguments.output + ".json")
    rows = {r["model"]: r for r in json.loads(path.read_text())["rows"]} if path.exists() else {}
    for name in arguments.models or known:
        rows[name] = measure(name)
        print(rows[name], flush=True)
        gc.collect()
        rows = dict(sorted(rows.items()))
        write_rows(str(path), list(rows.values()))
        with replacing(arguments.output + ".md") as draft:
            draft.write_text(as_markdown(list(rows.values())), encoding="utf-8")


if __name__ == "__main__":
    main()
