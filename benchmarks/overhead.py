"""Cost of an instruction without a budget: a long chain of tiny kernels on both VMs, in turns.

The chain alternates two kernels so that fusion keeps the ops apart. Prints the median time of a
run on each VM and the difference per bytecode instruction and per op.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np

os.environ.setdefault("TOPHUB_LOCATION", "NONE")
import tvm
from tvm import relay

from tvm_dtr.vm import VirtualMachine


def chain_executable(ops: int, folder: Path) -> tvm.runtime.vm.Executable:
    """A chain of `ops` calls of one kernel of 16 floats, as bytecode like the VM compiler's.

    The VM compiler needs minutes for long chains, so a loop body of 100 ops is compiled once, as
    a global function, and called over and over.
    """
    body_ops = 100
    module = tvm.IRModule()
    x = relay.var("x", shape=(16,), dtype="float32")
    value: relay.Expr = x
    for _ in range(body_ops):
        value = relay.annotation.stop_fusion(relay.negative(value))
    body = relay.GlobalVar("body")
    function = relay.Function([x], value, relay.TensorType((16,), "float32"))
    module[body] = function.with_attr("Inline", tvm.tir.IntImm("int32", 0))
    y = relay.var("y", shape=(16,), dtype="float32")
    value = y
    for _ in range(ops // body_ops):
        value = relay.Call(body, [value])
    module["main"] = relay.Function([y], value)
    with tvm.transform.PassContext(opt_level=1):
        executable = relay.vm.compile(module, "llvm")
    code, library = executable.save()
    path = folder / "chain.so"
    library.export_library(str(path))
    return tvm.runtime.vm.Executable.load_exec(code, tvm.runtime.load_module(str(path)))


def measure(ops: int, rounds: int) -> dict[str, float]:
    """Median seconds of a run on each VM, and the difference per instruction."""
    with tempfile.TemporaryDirectory() as folder:
        executable = chain_executable(ops, Path(folder))
        stock = tvm.runtime.vm.VirtualMachine(executable, tvm.cpu())
        ours = VirtualMachine(executable)
        x = np.arange(16, dtype="float32")
        expected = stock.invoke("main", x).numpy()
        np.testing.assert_array_equal(ours.invoke("main", x).numpy(), expected)
        ours.reset_stats()
        ours.invoke("main", x)
        counters = ours.counters()
        seconds: dict[str, list[float]] = {"stock": [], "ours": []}
        for _ in range(rounds):
            for name, vm in (("stock", stock), ("ours", ours)):
                start = time.perf_counter()
                vm.invoke("main", x)
                seconds[name].append(time.perf_counter() - start)
    stock_s, ours_s = (statistics.median(seconds[name]) for name in ("stock", "ours"))
    return {
        "ops": counters["calls"],
        "instructions": counters["instructions"],
        "stock_seconds": stock_s,
        "ours_seconds": ours_s,
        "extra_us_per_instruction": (ours_s - stock_s) / counters["instructions"] * 1e6,
        "extra_us_per_op": (ours_s - stock_s) / counters["calls"] * 1e6,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ops", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=31)
    parser.add_argument("--json", metavar="FILE")
    options = parser.parse_args()
    row = measure(options.ops, options.rounds)
    for name, value in row.items():
        print(f"{name:26} {value:.6g}")
    if options.json:
        Path(options.json).write_text(json.dumps(row))


if __name__ == "__main__":
    main()
