"""Padding arithmetic of ONNX's sliding windows (Conv and pooling)."""

from __future__ import annotations

import math

from .node import Node


def spatial_attr(node: Node, name: str, rank: int) -> list[int]:
    """A per-axis attribute whose default is one for each of ``rank`` spatial axes."""
    return [int(v) for v in node.attr(name, [1] * rank)]


def window_padding(
    node: Node, size: tuple[int, ...], kernel: list[int], stride: list[int], dilation: list[int]
) -> list[int]:
    """Paddings as ONNX orders them: before each spatial axis, then after each."""
    rank = len(size)
    mode = node.attr("auto_pad", "NOTSET")
    if mode in ("NOTSET", ""):
        return [int(p) for p in node.attr("pads", [0] * 2 * rank)]
    if mode == "VALID":
        return [0] * 2 * rank
    if mode not in ("SAME_UPPER", "SAME_LOWER"):
        raise node.error(f"auto_pad '{mode}' is not known; expected SAME_UPPER, SAME_LOWER, VALID")
    before, after = [], []
    for n, k, s, d in zip(size, kernel, stride, dilation, strict=True):
        total = max((math.ceil(n / s) - 1) * s + d * (k - 1) + 1 - n, 0)
        small, large = total // 2, total - total // 2
        before.append(small if mode == "SAME_UPPER" else large)
        after.append(large if mode == "SAME_UPPER" else small)
    return before + after


def transposed_window(
    node: Node, size: tuple[int, ...], kernel: list[int], stride: list[int], dilation: list[int]
) -> tuple[list[int], list[int]]:
    """Result sizes and paddings before each axis of ConvTranspose."""
    rank = len(size)
    extra = [int(p) for p in node.attr("output_padding", [0] * rank)]
    wanted = node.attr("output_shape")
    mode = node.attr("auto_pad", "NOTSET")
    full = [
        (n - 1) * s + d * (k - 1) + 1 + e
        for n, k, s, d, e in zip(size, kernel, stride, dilation, extra, strict=True)
    ]
    if wanted is None and mode in ("NOTSET", "", "VALID"):
        pads = node.attr("pads", [0] * 2 * rank)
        out = [f - pads[i] - pads[i + rank] for i, f in enumerate(full)]
        return out, [int(p) for p in pads[:rank]]
    if wanted is not None:
        out = [int(n) for n in wanted][-rank:]
    else:
        out = [n * s for n, s in zip(size, stride, strict=True)]
    before = []
    for f, n in zip(full, out, strict=True):
        total = max(f - n, 0)
        # Of an odd number one more is at the end for SAME_UPPER alone, as the operator says.
        before.append(total // 2 if mode == "SAME_UPPER" else total - total // 2)
    return out, before
