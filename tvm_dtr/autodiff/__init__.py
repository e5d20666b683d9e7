"""Reverse-mode automatic differentiation of Relay in graph form.

:func:`gradients` walks the graph backwards with one table of rules (``rules.GRADIENTS``), one
file per family of ops. The result has static shapes only.
"""

from . import (
    conv,
    cross_entropy,
    dense,
    elementwise,
    indexing,
    normalization,
    pool,
    reduce,
    shape,
)
from .clusters import cluster_elementwise
from .composite import composite, inline_composites
from .reverse import gradients
from .rules import CONSTANT_OPS, GRADIENTS, Adjoint, gradient

__all__ = [
    "CONSTANT_OPS",
    "GRADIENTS",
    "Adjoint",
    "cluster_elementwise",
    "composite",
    "conv",
    "cross_entropy",
    "dense",
    "elementwise",
    "gradient",
    "gradients",
    "indexing",
    "inline_composites",
    "normalization",
    "pool",
    "reduce",
    "shape",
]
