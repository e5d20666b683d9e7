"""Relay ops with kernels of our own; importing this package registers them."""

from . import extrema, relu
from .batch_statistics import batch_norm_gradient_sums, batch_statistics
from .conv_weight_gradient import conv2d_weight_gradient
from .cumulative_sum import cumulative_sum
from .direct_conv import conv2d, conv2d_input_gradient
from .dropout_mask import dropout_mask
from .matmul import matmul
from .max_pool_gradient import max_pool2d_gradient
from .scatter import scatter_rows
from .select import packing_pays, use_own_kernels
from .take_gradient import take_gradient, take_gradient_onto
from .top_k import top_k

__all__ = [
    "batch_norm_gradient_sums",
    "batch_statistics",
    "conv2d",
    "conv2d_input_gradient",
    "conv2d_weight_gradient",
    "cumulative_sum",
    "dropout_mask",
    "extrema",
    "matmul",
    "max_pool2d_gradient",
    "packing_pays",
    "relu",
    "scatter_rows",
    "take_gradient",
    "take_gradient_onto",
    "top_k",
    "use_own_kernels",
]
