"""Primitive functions -> one shared library, compiled in parallel and cached on disk."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import tvm
from tvm import relay
from tvm.contrib import cc

from tvm_dtr.errors import ProgramError, UsageError
from tvm_dtr.progress import Progress
from tvm_dtr.threads import cores

from .cache import KernelCache
from .codegen import compile_primitive, reason_of
from .primitive import kernel_keys, kernel_name
from .worker_pool import WorkerPool
from .workspace import Workspace

# A worker takes a second to import TVM; a kernel compiles in a tenth of that.
_KERNELS_PER_WORKER = 8


@dataclass
class CompiledKernel:
    """A kernel of the library; key names it on disk."""

    name: str
    key: str
    primitive: relay.Function
    object_path: Path
    workspace: Workspace


def compile_kernels(
    primitives: list[relay.Function],
    target: tvm.target.Target,
    folder: Path,
    cache: KernelCache,
    jobs: int | None = None,
    progress: Progress | None = None,
) -> list[CompiledKernel]:
    """Compile each function to an object file in `folder`, or take it from the cache.

    jobs: most compiler processes at a time, by default one per CPU. Raises ProgramError naming
    the kernel that does not compile.
    """
    keys = kernel_keys(primitives, target)
    kernels = []
    for primitive, key in zip(primitives, keys, strict=True):
        name = kernel_name(primitive, key)
        kernels.append(CompiledKernel(name, key, primitive, folder / f"{name}.o", Workspace(0, 0)))
    missing = [kernel for kernel in kernels if not _from_cache(kernel, cache)]
    done = len(kernels) - len(missing)

    def finished(kernel: CompiledKernel) -> None:
        nonlocal done
        done += 1
        _to_cache(kernel, cache)
        if progress is not None:
            progress(done, len(kernels), kernel.name)

    _compile(missing, target, folder, jobs, finished)
    return kernels


def link_library(kernels: list[CompiledKernel], path: Path) -> None:
    """Link object files, in order of name, to a shared library. Raises UsageError, ProgramError."""
    compiler = cc.get_cc()
    if not compiler:
        raise UsageError(
            "no C++ compiler found, and linking the kernels needs one; install g++ or clang++, or "
            "name yours in the environment variable CXX"
        )
    objects = sorted(str(kernel.object_path) for kernel in kernels)
    options = ["-Wl,--build-id=none"] if objects else ["-x", "c++", os.devnull]
    try:
        cc.create_shared(str(path), objects, options=options, cc=compiler)
    except (RuntimeError, OSError, subprocess.SubprocessError) as error:
        lines = [line for line in str(error).splitlines() if "error" in line]
        reason = (lines or str(error).splitlines() or ["no message"])[-1].strip()
        raise ProgramError(
            f"{compiler} could not link the kernel library ({reason}); check that it links C++ "
            "programs, or name another compiler in CXX"
        ) from error


def _compile(
    missing: list[CompiledKernel],
    target: tvm.target.Target,
    folder: Path,
    jobs: int | None,
    finished: Callable[[CompiledKernel], None],
) -> None:
    workers = min(jobs or cores(), os.cpu_count() or 1)
    workers = min(workers, len(missing) // _KERNELS_PER_WORKER)
    if workers > 1:
        with WorkerPool(workers, folder) as pool:
            pool.run(missing, str(target), finished)
        return
    for kernel in missing:
        try:
            path = str(kernel.object_path)
            kernel.workspace = compile_primitive(kernel.primitive, kernel.name, target, path)
        except (tvm.TVMError, ValueError, RuntimeError, TypeError, AttributeError) as error:
            reason = f"TVM cannot compile the kernel {kernel.name}: {reason_of(error)}"
            raise ProgramError(reason) from error
        finished(kernel)


def _from_cache(kernel: CompiledKernel, cache: KernelCache) -> bool:
    content = cache.get(kernel.key)
    if content is None:
        return False
    with contextlib.suppress(ValueError, KeyError, TypeError, tvm.TVMError):
        line, _, rest = content.partition(b"\n")
        header = json.loads(line)
        size = header["function_bytes"]
        # The key is a hash: make sure that the entry is of the same function.
        stored = tvm.ir.load_json(rest[:size].decode())
        if header["name"] == kernel.name and tvm.ir.structural_equal(stored, kernel.primitive):
            kernel.workspace = Workspace(*header["workspace"])
            kernel.object_path.write_bytes(rest[size:])
            return True
    return False


def _to_cache(kernel: CompiledKernel, cache: KernelCache) -> None:
    function = tvm.ir.save_json(kernel.primitive).encode()
    header = {
        "name": kernel.name,
        "workspace": list(kernel.workspace),
        "function_bytes": len(function),
    }
    content = json.dumps(header).encode() + b"\n" + function + kernel.object_path.read_bytes()
    cache.put(kernel.key, content)
