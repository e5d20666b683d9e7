"""What kernels are compiled for: LLVM's name of this CPU and the instruction sets it needs."""

from __future__ import annotations

import platform
from typing import Any

import tvm
from tvm.target import codegen

from tvm_dtr.errors import UsageError

from .codegen import reason_of

# Instruction sets that LLVM picks for arithmetic; others (sgx, pku, ...) never appear in kernels.
_ARITHMETIC = (
    *("sse", "ssse", "avx", "amx", "fma", "f16c", "bmi", "lzcnt", "popcnt", "movbe", "adx"),
    *("gfni", "vaes", "vpclmul", "neon", "sve", "sme", "dotprod", "fullfp16", "bf16", "i8mm"),
    *("fp-armv8", "lse"),
)


def _kinds() -> list[str]:
    return [str(kind) for kind in tvm.target.Target.list_kinds()]


def resolve_target(target: Any) -> tvm.target.Target:
    """The TVM target of a user's string; "llvm" alone means the CPU of this machine.

    Raises UsageError for a target that is not a CPU target of LLVM.
    """
    if not isinstance(target, str | tvm.target.Target):
        raise UsageError(f"target is a {type(target).__name__}, expected a string such as 'llvm'")
    target = str(target)
    try:
        # A kind without a device here, such as cuda, would make TVM warn before we refuse it.
        if target.split()[:1] not in ([], ["llvm"]) and target.split()[0] in _kinds():
            raise UsageError(
                f"target '{target}' is for {target.split()[0]}, expected a CPU target; use 'llvm'"
            )
        resolved = tvm.target.Target(target)
    except (ValueError, tvm.TVMError) as error:
        raise UsageError(
            f"target '{target}' is not understood ({reason_of(error)}); use 'llvm' for this CPU or "
            "'llvm -mcpu=NAME'"
        ) from error
    if resolved.kind.name != "llvm":
        raise UsageError(
            f"target '{target}' is for {resolved.kind.name}, expected a CPU target; use 'llvm'"
        )
    if target.split() != ["llvm"]:
        _check_runs_here(target, resolved)
        return resolved
    host = f"llvm -mcpu={codegen.llvm_get_system_cpu()}"
    # LLVM names a CPU by its model; a hypervisor may hide some of that model's instructions.
    hidden = missing_features(required_features(tvm.target.Target(host)))
    attributes = " -mattr=" + ",".join(f"-{name}" for name in hidden) if hidden else ""
    return tvm.target.Target(host + attributes)


def _check_runs_here(text: str, target: tvm.target.Target) -> None:
    """Kernels are timed as they are built, so they must run on this machine."""
    triple, here = target.attrs.get("mtriple"), codegen.llvm_get_system_triple()
    if triple is not None and str(triple) != here:
        raise UsageError(f"target '{text}' is for {triple}, expected {here}; leave -mtriple out")
    known = [str(name) for name in codegen.llvm_get_cpu_archlist(tvm.target.Target("llvm"))]
    if cpu_name(target) not in known:
        raise UsageError(
            f"target '{text}' names the CPU {cpu_name(target)}, which LLVM does not know; use "
            "'llvm' for this CPU"
        )
    missing = missing_features(required_features(target))
    if missing:
        raise UsageError(
            f"target '{text}' needs {', '.join(missing)}, which this CPU has not; build on the "
            "machine that runs the program, or use 'llvm'"
        )


def cpu_name(target: tvm.target.Target) -> str:
    """LLVM's name of the CPU that a target is for."""
    return str(target.attrs.get("mcpu", "generic"))


def machine() -> str:
    """The instruction set architecture of this machine, for example x86_64."""
    return platform.machine()


def required_features(target: tvm.target.Target) -> list[str]:
    """Arithmetic instruction sets that code for this target may use, sorted."""
    features = codegen.llvm_get_cpu_features(target)
    return sorted(f for f in map(str, features) if f.startswith(_ARITHMETIC))


def missing_features(features: list[str]) -> list[str]:
    """Those of `features` that LLVM knows of and does not find on this machine."""
    host = tvm.get_global_func("tvm.codegen.llvm.GetHostCPUFeatures")()
    present = {str(name): bool(value) for name, value in host.items()}
    return [name for name in features if not present.get(name, True)]
