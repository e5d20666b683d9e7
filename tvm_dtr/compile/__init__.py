"""Training step -> Program: fuse, compile kernels, order the ops, write bytecode."""

from __future__ import annotations

from .build_program import compile_step
from .opgraph import Kernel, OpGraph, OpInfo, TensorInfo

__all__ = ["Kernel", "OpGraph", "OpInfo", "TensorInfo", "compile_step"]
