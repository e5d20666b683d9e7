"""Kernels that were compiled in memory, moved to a shared library.

Only kernels of a shared library can be led to take their workspace from the arena: TVM's pointers
to its own workspace are variables of that library. In memory (JIT) they are out of reach, and a
budget would not hold.
"""

from __future__ import annotations

import tvm
from tvm.contrib import cc

from .errors import UsageError
from .program import private_folder

_WHY = (
    "a memory budget needs the kernels in a shared library, so that their workspace counts; "
    "exporting this executable's kernels to one failed"
)
_WHAT_TO_DO = (
    "install a C++ compiler (g++ or clang++ on the PATH, or CXX), or export the library where "
    "there is one and load it: executable.lib.export_library(path), then "
    "Executable.load_exec(bytecode, tvm.runtime.load_module(path)); or give no budget"
)


def export_kernels(library: tvm.runtime.Module) -> tuple[tvm.runtime.Module, str]:
    """The same kernels in a shared library: the module and the file's path.

    The file stays until the process ends: the loader would take a new file in its place for the
    old one.

    Raises:
        UsageError: there is no C++ compiler to link with, or the kernels cannot be exported.
    """
    if cc.get_cc() is None:
        raise UsageError(f"{_WHY} (no C++ compiler was found): {_WHAT_TO_DO}")
    path = str(private_folder() / "kernels.so")
    try:
        library.export_library(path)
        return tvm.runtime.load_module(path), path
    except Exception as error:  # what a linker or a code generator raises
        lines = str(error).strip().splitlines() or [type(error).__name__]
        raise UsageError(f"{_WHY} ({lines[-1].strip()}): {_WHAT_TO_DO}") from None
