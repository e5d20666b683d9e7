"""Import of ONNX models for training.

:func:`import_model` walks the graph with one table of converters (``registry.CONVERTERS``), one
file per family of ops, and builds Relay in graph form. Initializers become parameters, running
statistics become state, shapes are static, and normalization computes with batch statistics.
"""

from . import (
    activations,
    control_flow,
    einsum,
    elementwise,
    indexing,
    losses,
    nn,
    normalization,
    pooling,
    recurrent,
    reductions,
    resize,
    runtime_shape,
    sequences,
    shape,
)
from .importer import ImportedModel, import_model
from .load import load_model
from .registry import CONVERTERS

__all__ = [
    "CONVERTERS",
    "ImportedModel",
    "activations",
    "control_flow",
    "einsum",
    "elementwise",
    "import_model",
    "indexing",
    "load_model",
    "losses",
    "nn",
    "normalization",
    "pooling",
    "recurrent",
    "reductions",
    "resize",
    "runtime_shape",
    "sequences",
    "shape",
]
