"""What identifies a fused primitive function: its key on disk and its readable name."""

from __future__ import annotations

import hashlib
import re
from typing import Any

import tvm
from tvm import relay

from .codegen import OPT_LEVEL
from .relay_walk import post_order, tensor_types

KERNEL_FORMAT = 6  # raise when the same primitive function compiles to other code
_NAME_LENGTH = 64  # characters for the ops in a kernel's name


def tvm_version() -> str:
    """Version and commit of the TVM in this process."""
    commit = tvm.support.libinfo().get("GIT_COMMIT_HASH", "unknown")
    return f"{tvm.__version__} ({commit[:8]})"


def kernel_keys(primitives: list[relay.Function], target: tvm.target.Target) -> list[str]:
    """A hexadecimal key for each function; different functions get different keys."""
    keys: list[str] = []
    for primitive in primitives:
        parts = [
            str(tvm.ir.structural_hash(primitive)),
            str(signature(primitive)),
            str(target),
            tvm_version(),
            f"{KERNEL_FORMAT}.{OPT_LEVEL}",
        ]
        key = hashlib.sha256("|".join(parts).encode()).hexdigest()
        while key in keys:  # two functions of one hash
            key = hashlib.sha256(key.encode()).hexdigest()
        keys.append(key)
    return keys


def kernel_name(primitive: relay.Function, key: str) -> str:
    """A C identifier such as fused_nn_conv2d_add_3a91c0d2e4b7."""
    ops = [e.op.name for e in post_order(primitive.body) if isinstance(e, relay.Call)]
    words = re.sub(r"\W", "_", "_".join(ops))[:_NAME_LENGTH].rstrip("_")
    return f"fused_{words}_{key[:12]}"


Tensor = tuple[tuple[int, ...], str]


def signature(primitive: relay.Function) -> tuple[list[Tensor], list[Tensor]]:
    """(shape, dtype) of each array that the kernel reads, then of each that it writes."""
    inputs = [t for p in primitive.params for t in tensor_types(p.checked_type)]
    return inputs, tensor_types(primitive.ret_type or primitive.body.checked_type)


def span_name(expr: Any) -> str:
    """The name that the front end gave an expression, or ""."""
    span = getattr(expr, "span", None)
    return str(span.source_name.name) if span is not None else ""
