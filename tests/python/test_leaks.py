"""Ten thousand steps hold what some hundred held: records, memory, Python objects."""

import gc
import resource
from pathlib import Path

import numpy as np

import tvm_dtr
from tvm_dtr.models.mlp import mlp

STEPS, WARM = 10_000, 500
BATCH = 256
GROWTH = 2 << 20  # bytes: far less than a step leaves behind if it leaves its smallest tensor
HELD = ("active_bytes", "pinned_bytes", "live_ops", "live_tensors", "live_storages")


def resident_bytes():
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()


def held(vm):
    counters = vm.counters()
    return {name: counters[name] for name in HELD if name in counters}


def test_ten_thousand_steps_under_a_budget():
    model = mlp(batch=BATCH, seed=0, features=6, width=16, hidden_layers=4, classes=3)
    program = tvm_dtr.build(model, loss="cross_entropy", optimizer=tvm_dtr.SGD(lr=0.01))
    smallest = program.replay.smallest_budget()
    budget = (smallest + program.unbudgeted_peak_bytes) // 2
    vm = tvm_dtr.VirtualMachine(program, memory_budget=budget)
    rng = np.random.default_rng(0)
    x = rng.normal(size=(BATCH, 6)).astype("float32")
    labels = rng.integers(0, 3, BATCH)
    for step in range(STEPS):
        loss = vm.step(x=x, labels=labels)["loss"]
        if step == WARM:
            gc.collect()
            before, objects, resident = held(vm), len(gc.get_objects()), resident_bytes()
    vm.validate()
    gc.collect()
    assert np.isfinite(loss)
    assert len(before) >= 3 and held(vm) == before
    assert len(gc.get_objects()) - objects < 100
    assert resident_bytes() - resident < GROWTH
