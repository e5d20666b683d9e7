"""What recording an event trace costs: steps with and without, in turn, in one process.

python benchmarks/trace_overhead.py --json benchmarks/results/trace_overhead.json
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
from pathlib import Path

import tvm_dtr
from tvm_dtr import models
from tvm_dtr.cli.synthetic import synthetic_inputs


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", default="resnet20,resnet32,mlp")
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--budget", default="60%")
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--json", type=Path, required=True)
    arguments = parser.parse_args()
    rows = []
    for name in arguments.models.split(","):
        model = models.make(name, batch=arguments.batch)
        program = tvm_dtr.build(model, loss="cross_entropy", optimizer=tvm_dtr.SGD(lr=0.01))
        inputs = synthetic_inputs(program, 0)
        vm = tvm_dtr.VirtualMachine(program, memory_budget=arguments.budget)
        vm.step(**inputs)
        plain, traced = [], []
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "run.dtrace"
            for _ in range(arguments.rounds):
                vm.step(**inputs)
                plain.append(vm.stats["step_seconds"])
                vm.start_trace(path)
                vm.step(**inputs)
                traced.append(vm.stats["step_seconds"])
                vm.stop_trace()
            size = path.stat().st_size
        ratio = statistics.median(traced) / statistics.median(plain)
        rows.append({"model": name, "ratio": ratio, "bytes_per_step": size, "rounds": len(plain)})
        print(rows[-1], flush=True)
        arguments.json.write_text(json.dumps({"rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
