"""What the kernels need to know of a CPU."""

from __future__ import annotations

from dataclasses import dataclass

import tvm
from tvm.target.codegen import target_has_features


@dataclass(frozen=True)
class VectorUnit:
    """``lanes`` of a vector of 32-bit floats; ``accumulators``, registers for partial sums.

    Vectors of 64-bit floats take the same lanes in two registers: slower but correct, and
    double precision is for checks of gradients.
    """

    lanes: int
    accumulators: int


def vector_unit(target: tvm.target.Target) -> VectorUnit:
    """The vector unit of an LLVM target."""
    if target_has_features("avx512f", target):
        return VectorUnit(lanes=16, accumulators=16)
    if target_has_features("avx2", target):
        return VectorUnit(lanes=8, accumulators=8)
    return VectorUnit(lanes=4, accumulators=8)
