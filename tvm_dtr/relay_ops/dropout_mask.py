"""Masks of dropout, as a function of a key: the same key gives the same mask again.

So the backward pass, and a recomputation of the forward one, draw the mask anew instead of
keeping it. The generator is Threefry-2x32 with 20 rounds (Salmon et al., SC 2011): a keyed
bijection of a counter, here the index of the element.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tvm import relay, te, tir
from tvm.ir import TensorType

from ..relay_graph import Expr
from .cpu import VectorUnit
from .registration import call_op, flat, ints, register_op

NAME = "dtr.dropout_mask"
ROTATIONS = (13, 15, 26, 6, 17, 29, 16, 24)
PARITY = 0x1BD11BDA
CHUNK = 1024


def dropout_mask(
    key: Expr, shape: Sequence[int], dtype: str, ratio: float, stream: int
) -> relay.Call:
    """Zeros with probability ``ratio``, else 1 / (1 - ratio).

    ``key`` is uint32 (2,); ``stream`` sets masks of one key apart.
    """
    return call_op(NAME, [key], shape=list(shape), dtype=dtype, ratio=ratio, stream=stream)


def threefry2x32(key: tuple[Any, Any], counter: tuple[Any, Any]) -> tuple[Any, Any]:
    """The generator on uint32 values: TIR expressions or NumPy scalars."""
    keys = (key[0], key[1], key[0] ^ key[1] ^ PARITY)
    x, y = counter[0] + keys[0], counter[1] + keys[1]
    for turn in range(20):
        rotation = ROTATIONS[turn % 8]
        x = x + y
        y = ((y << rotation) | (y >> (32 - rotation))) ^ x
        if turn % 4 == 3:
            block = turn // 4 + 1
            x, y = x + keys[block % 3], y + keys[(block + 1) % 3] + block
    return x, y


def _bits(ib: Any, key: Any, index: Any, stream: int) -> Any:
    """First word of the generator for an element.

    The state is in memory as far as TVM knows: as an expression, or as variables that its
    simplification inlines, it would double with each of the rounds.
    """

    def u32(value: Any) -> Any:
        return tir.const(value, "uint32")

    keys = ib.allocate("uint32", 3, "keys", scope="global")
    x, y = (ib.allocate("uint32", 1, name, scope="global") for name in ("x", "y"))
    keys[0], keys[1] = key[0], key[1]
    keys[2] = keys[0] ^ keys[1] ^ u32(PARITY)
    x[0], y[0] = tir.Cast("uint32", index) + keys[0], u32(stream) + keys[1]
    for turn in range(20):
        rotation = ROTATIONS[turn % 8]
        x[0] = x[0] + y[0]
        y[0] = ((y[0] << u32(rotation)) | (y[0] >> u32(32 - rotation))) ^ x[0]
        if turn % 4 == 3:
            block = turn // 4 + 1
            x[0] = x[0] + keys[block % 3]
            y[0] = y[0] + keys[(block + 1) % 3] + u32(block)
    return x[0]


def _compute(
    attrs: Any, inputs: Sequence[te.Tensor], out_type: TensorType, unit: VectorUnit
) -> list[te.Tensor]:
    shape, ratio = ints(attrs["shape"]), float(attrs["ratio"])
    dtype, stream = str(attrs["dtype"]), int(attrs["stream"])
    size = math.prod(shape)
    # Kept are the elements whose 32 bits, as a number in [0, 1), are at least the ratio.
    limit = min(round(ratio * 2**32), 2**32 - 1)

    def body(ins: Any, outs: Any) -> Any:
        ib = tir.ir_builder.create()
        key, mask = flat(ib, ins[0]), flat(ib, outs[0])
        zero, kept = tir.const(0, dtype), tir.const(1 / (1 - ratio), dtype)
        with ib.for_range(0, -(-size // CHUNK), "chunk", kind="parallel") as chunk:
            first = chunk * CHUNK
            with ib.for_range(0, tir.min(CHUNK, size - first), "i") as i:
                bits = _bits(ib, key, first + i, stream)
                mask[first + i] = tir.Select(bits >= tir.const(limit, "uint32"), kept, zero)
        return ib.get()

    return [te.extern(shape, list(inputs), body, name="dropout_mask", dtype=dtype)]


register_op(
    NAME,
    ["key"],
    lambda attrs, types: TensorType(list(attrs["shape"]), str(attrs["dtype"])),
    _compute,
)
