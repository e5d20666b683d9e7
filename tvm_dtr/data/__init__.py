"""Batches for training: from arrays, files, functions, iterables and loader objects."""

from .batches import ArrayBatches, Batches, IterableBatches, SyntheticBatches
from .prefetch import prefetched
from .sources import open_data

__all__ = [
    "ArrayBatches",
    "Batches",
    "IterableBatches",
    "SyntheticBatches",
    "open_data",
    "prefetched",
]
