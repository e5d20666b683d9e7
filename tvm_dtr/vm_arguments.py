"""Checks what a caller gives to a virtual machine: the program, the seed, the thrash limit."""

from __future__ import annotations

import math
import os
from numbers import Integral, Real
from typing import Any

import numpy as np
import tvm
from tvm.runtime import vm as tvm_vm

from . import _core
from .budget import Budget
from .errors import UsageError
from .program import Program


def is_executable(program: Any) -> bool:
    """Whether it is what TVM's own virtual machine takes."""
    return isinstance(program, tvm_vm.Executable | tvm.runtime.Module)


def is_memory_cfg(value: Any) -> bool:
    """Whether it is what TVM's virtual machine takes as ``memory_cfg``."""
    return isinstance(value, dict) or (isinstance(value, str) and value in ("naive", "pooled"))


def check_arguments(program: Any, seed: Any, thrash_limit: Any, memory_cfg: Any) -> None:
    """Raises UsageError where one of them is of a wrong kind or out of range."""
    _check_program(program)
    if memory_cfg is not None and not is_memory_cfg(memory_cfg):
        raise UsageError(f"memory_cfg {memory_cfg!r}: expected naive, pooled or a dict")
    integer = isinstance(seed, Integral) and not isinstance(seed, bool)
    if not integer or not 0 <= int(seed) < 2**64:
        raise UsageError(f"seed {seed!r}: expected an integer from 0 to 2**64 - 1")
    number = isinstance(thrash_limit, Real) and not isinstance(thrash_limit, bool)
    if not number or math.isnan(thrash_limit) or thrash_limit < 0:
        raise UsageError(
            f"thrash limit {thrash_limit!r}: expected a number from 0 (never stops) on"
        )


def _check_program(program: Any) -> None:
    if isinstance(program, Program) or is_executable(program):
        return
    if isinstance(program, str | os.PathLike):
        raise UsageError(
            f"program {os.fspath(program)!r} is a path: load it with tvm_dtr.load(...) first"
        )
    raise UsageError(
        f"program is a {type(program).__name__}: expected a Program from tvm_dtr.build or "
        "tvm_dtr.load, or a tvm.runtime.vm.Executable"
    )


def signed_seed(seed: int) -> int:
    """The same 64 bits as TVM's functions take them."""
    return int(seed) - 2**64 if seed >= 2**63 else int(seed)


def overwrite_marks(graph: Any) -> np.ndarray:
    """(n, 2) of int64: kernel calls by their number in execution order, and the index of the
    argument that each may overwrite."""
    ops = [index for kind, index in graph.instructions if kind == "op"]
    number = {op: i for i, op in enumerate(ops)}
    pairs = [(number[op], index) for op, index in graph.overwrites]
    return np.array(pairs, "int64").reshape(len(pairs), 2)


def budget_bytes(budget: Budget, program: Program | None) -> int | None:
    """In bytes; None is no budget. Raises UsageError where it depends on what is not known."""
    if budget.fraction is None and not budget.automatic:
        return budget.bytes
    if program is None:
        raise UsageError(
            "a budget in percent or auto needs the unbudgeted peak, which is known of programs "
            "from tvm_dtr.build only: give it in bytes, for example 512MiB"
        )
    if budget.automatic:
        from .advise import automatic_budget

        return automatic_budget(program)
    return budget.resolve(program.unbudgeted_peak_bytes)


def budget_code(budget: int | None) -> int:
    """As the module has it."""
    return -1 if budget is None else budget


def check_policy(policy: str) -> None:
    """Raises UsageError for a name that is no policy's."""
    if policy not in ("auto", *_core.policies()):
        raise UsageError(
            f"unknown policy '{policy}': choose one of auto, plan, plan:PLANNER, "
            f"{', '.join(sorted(_core.policies()))}"
        )
