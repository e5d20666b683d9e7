"""Train ONNX models with TVM under a hard memory budget."""

from __future__ import annotations

import importlib
import os
import sys
import types
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .build import build
    from .optim import SGD
    from .program import Program
    from .vm import VirtualMachine

# Imported when first used: TVM takes a second, which `tvm-dtr --help` need not wait for.
_WHERE = {
    "SGD": ".optim",
    "Program": ".program",
    "VirtualMachine": ".vm",
    "build": ".build",
}

__all__ = ["SGD", "Program", "VirtualMachine", "build", "load"]


def load(path: str | os.PathLike[str]) -> Program:
    """Reads a program file, which holds native code: load only what you trust.

    Raises:
        ProgramError: the file is damaged, or was made by another version or for another machine.
    """
    from .program import Program

    return Program.load(os.fspath(path))


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    value = getattr(importlib.import_module(_WHERE[name], __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


class _Package(types.ModuleType):
    def __setattr__(self, name: str, value: Any) -> None:
        # Python binds a submodule to its package: the module `build` must not hide the function.
        if not (name == "build" and isinstance(value, types.ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
