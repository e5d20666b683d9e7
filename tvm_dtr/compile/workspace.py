"""Bound on the workspace that a lowered kernel takes from TVMBackendAllocWorkspace.

By the time a function is lowered, TVM has merged buffers that are not alive together and hoisted
the rest to the top of the function or of a parallel loop. So what is allocated outside parallel
loops is taken once, what is inside is taken by each thread that runs the loop.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import tvm
from tvm import tir

ALIGNMENT = 128  # bytes; each allocation may be rounded up to this
STACK_LIMIT = 1024  # bytes; TVM puts smaller buffers on the stack (runtime::kMaxStackAlloca)


class Workspace(NamedTuple):
    """Bytes held at a time: `serial` once and `per_thread` by each thread of a parallel loop."""

    serial: int
    per_thread: int

    def total(self, threads: int | None = None) -> int:
        """Bytes of one call on `threads` threads, by default as many as TVM uses here."""
        return self.serial + self.per_thread * (threads or tvm.runtime.num_threads())


def workspace_of(function: tir.PrimFunc) -> Workspace:
    """The bound for a function after tvm.lower."""
    return _statement(function.body)


def _statement(stmt: Any) -> Workspace:
    if isinstance(stmt, tir.SeqStmt):
        return _widest([_statement(child) for child in stmt.seq])
    if isinstance(stmt, tir.IfThenElse):
        branches = [stmt.then_case] + ([stmt.else_case] if stmt.else_case is not None else [])
        return _widest([_statement(branch) for branch in branches])
    if isinstance(stmt, tir.Allocate):
        inner = _statement(stmt.body)
        return Workspace(inner.serial + _allocated(stmt), inner.per_thread)
    if isinstance(stmt, tir.For):
        inner = _statement(stmt.body)
        is_parallel = stmt.kind == tir.ForKind.PARALLEL
        return Workspace(0, inner.serial + inner.per_thread) if is_parallel else inner
    body = getattr(stmt, "body", None)
    return Workspace(0, 0) if body is None else _statement(body)


def _widest(parts: list[Workspace]) -> Workspace:
    return Workspace(max(p.serial for p in parts), max(p.per_thread for p in parts))


def _allocated(stmt: tir.Allocate) -> int:
    dtype = tvm.DataType(stmt.dtype)
    size = (dtype.bits * dtype.lanes + 7) // 8
    for extent in stmt.extents:
        size *= int(extent)
    if size < STACK_LIMIT:
        return 0
    return (size + ALIGNMENT - 1) // ALIGNMENT * ALIGNMENT
