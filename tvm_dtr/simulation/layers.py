"""Many equal layers, forward and backward, as flat arrays of ops."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


class LayerOp:
    """One op of a layer.

    reads: ``in``, what the layer reads (the layer below, at last the step's input); ``fI``, the
    layer's forward op I; ``g``, the gradient of what the layer gives (the last backward op of
    the layer above, at the top the loss); ``bI`` and ``bI+``, backward op I of this layer and of
    the layer above.
    """

    def __init__(self, cost: float, size: int, *reads: str) -> None:
        self.cost, self.size, self.reads = cost, size, reads


@dataclass(frozen=True)
class Layer:
    """The last forward op is what the layer gives, the last backward op its input's gradient."""

    forward: list[LayerOp]
    backward: list[LayerOp]


def stack(
    layer: Layer, count: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Costs, sizes, inputs, starts and results (see workloads.Step) of ``count`` layers.

    Tensor 0 is the input; then come the forward ops from the bottom up, one op for the loss, the
    backward ops from the top down. Results: what no op reads.
    """
    up, down = layer.forward, layer.backward
    index = np.arange(count)
    loss = 1 + count * len(up)
    parts = [_columns(up, index, count, layer), np.array([loss - 1])]
    parts.append(_columns(down, index[::-1], count, layer))
    inputs = np.concatenate([part.reshape(-1) for part in parts])
    counts = [
        np.tile([len(op.reads) for op in up], count),
        np.array([1]),
        np.tile([len(op.reads) for op in down], count),
    ]
    starts = np.concatenate([[0], np.cumsum(np.concatenate(counts))])
    costs = np.concatenate(
        [np.tile([op.cost for op in up], count), [1.0], np.tile([op.cost for op in down], count)]
    )
    sizes = np.concatenate(
        [[1], np.tile([op.size for op in up], count), [1], np.tile([op.size for op in down], count)]
    )
    read = np.zeros(len(sizes), bool)
    read[inputs] = True
    return costs, sizes, inputs, starts, np.flatnonzero(~read)


def _columns(ops: list[LayerOp], index: np.ndarray, count: int, layer: Layer) -> np.ndarray:
    """What the ops of each layer in ``index`` read: a row a layer, a column an operand."""
    reads = [read for op in ops for read in op.reads]
    return np.stack([_tensor(read, index, count, layer) for read in reads], axis=1)


def _tensor(read: str, index: np.ndarray, count: int, layer: Layer) -> np.ndarray:
    up, down = len(layer.forward), len(layer.backward)
    loss = 1 + count * up
    if read == "in":
        return index * up  # the tensor before the layer's first: the layer below, or the input
    if read == "g":
        read = f"b{down - 1}+"
    if read[0] == "f":
        return 1 + index * up + int(read[1:])
    above = read.endswith("+")
    place = count - 1 - index - above  # in the order of the backward pass
    return np.where(place < 0, loss, loss + 1 + place * down + int(read[1:].rstrip("+")))
