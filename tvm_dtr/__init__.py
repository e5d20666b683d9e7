"""Train ONNX models with TVM under a hard memory budget.

``build`` compiles an ONNX model with loss, gradients and optimizer; ``VirtualMachine`` runs the
program's steps under a memory budget by Dynamic Tensor Rematerialization.
"""

from __future__ import annotations

import os
import tempfile
from importlib import import_module
from typing import TYPE_CHECKING, Any

from .errors import (
    BudgetError,
    CheckpointError,
    DivergedError,
    DTRError,
    InputError,
    ModelError,
    ProgramError,
    ThrashError,
    UsageError,
)
from .threads import cores

# Read by TVM when it starts its worker threads. Unless it stands here, TVM also asks the system at
# each kernel how many processors there are, which reads a file: 6 % of a Tree-LSTM's step.
os.environ.setdefault("TVM_NUM_THREADS", os.environ.get("OMP_NUM_THREADS") or str(cores()))

# TVM ties its threads, the caller's among them, to a core each, counted from the first: with one
# thread each, all processes on a machine, those that they start included, would share core 0.
os.environ.setdefault("TVM_BIND_THREADS", "0")

# How often TVM's worker threads yield before they sleep; read when they start. With TVM's 300000
# they keep their cores in the kernel, which interrupts them each time the arena moves pages: an
# LSTM at half its peak took 1.5 times as long. Without a budget the difference is within 4 %.
os.environ.setdefault("TVM_THREAD_POOL_SPIN_COUNT", "100")

# A folder that TVM makes when it is imported, for files of its tutorials: ~/.tvm_test_data unless
# it stands here, and then no import where the home folder is read-only or missing.
os.environ.setdefault("TEST_DATA_ROOT_PATH", tempfile.gettempdir())

if TYPE_CHECKING:
    from .builder import build, make_training_step
    from .comparison import compare
    from .optim import SGD, Adagrad, Adam, AdamW, Lion, RMSprop
    from .program import Program, load
    from .simulation import simulate
    from .trainer import Callback, Trainer
    from .vm import VirtualMachine

# Imported on first use: importing TVM takes a second that `tvm-dtr --help` need not wait for.
_LAZY = {
    "SGD": "optim",
    "Adagrad": "optim",
    "Adam": "optim",
    "AdamW": "optim",
    "Lion": "optim",
    "Callback": "trainer",
    "Program": "program",
    "RMSprop": "optim",
    "Trainer": "trainer",
    "VirtualMachine": "vm",
    "build": "builder",
    "compare": "comparison",
    "load": "program",
    "make_training_step": "builder",
    "simulate": "simulation",
}

__all__ = [
    "SGD",
    "Adagrad",
    "Adam",
    "AdamW",
    "BudgetError",
    "Callback",
    "CheckpointError",
    "DTRError",
    "DivergedError",
    "InputError",
    "Lion",
    "ModelError",
    "Program",
    "ProgramError",
    "RMSprop",
    "ThrashError",
    "Trainer",
    "UsageError",
    "VirtualMachine",
    "build",
    "compare",
    "load",
    "make_training_step",
    "simulate",
]

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f".{_LAZY[name]}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *_LAZY])
