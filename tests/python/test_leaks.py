"""Ten thousand steps hold what some hundred held: records, memory, Python objects."""

import ctypes
import gc
import itertools
import resource
import sys
from pathlib import Path

import numpy as np

import tvm_dtr
from tvm_dtr.models.mlp import mlp

WARM, WINDOW, WINDOWS = 500, 1_900, 5  # steps
BATCH = 256
GROWTH = 64 * WINDOW  # bytes: the smallest tensor of a step, left behind at each
HELD = ("active_bytes", "pinned_bytes", "live_ops", "live_tensors", "live_storages")


class MallocInfo(ctypes.Structure):
    """glibc's ``struct mallinfo2``: hblkhd is its fifth field, uordblks the eighth."""

    _fields_ = [("fields", ctypes.c_size_t * 10)]


def allocated_bytes():
    """What malloc has given out, to the byte where the C library can say, else the resident set."""
    try:
        call = ctypes.CDLL(None).mallinfo2
    except AttributeError:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return pages * resource.getpagesize()
    call.restype = MallocInfo
    fields = call().fields
    return fields[4] + fields[7]


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
    allocated = []
    for step in range(WARM + WINDOWS * WINDOW + 1):
        loss = vm.step(x=x, labels=labels)["loss"]
        if step >= WARM and (step - WARM) % WINDOW == 0:
            gc.collect()
            allocated.append(allocated_bytes())
            if step == WARM:
                before, blocks = held(vm), sys.getallocatedblocks()
    vm.validate()
    gc.collect()
    assert np.isfinite(loss)
    assert len(before) >= 3 and held(vm) == before
    assert sys.getallocatedblocks() - blocks < 1_000  # of Python's own allocator
    # A leak grows in each window; what other threads of the process allocate does not.
    assert min(after - first for first, after in itertools.pairwise(allocated)) < GROWTH, allocated
