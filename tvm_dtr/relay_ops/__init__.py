"""Relay ops with kernels of our own; importing this package registers them."""

from . import relu
from .batch_statistics import batch_norm_gradient_sums, batch_statistics
from .conv_weight_gradient import conv2d_weight_gradient
from .direct_conv import conv2d, conv2d_input_gradient
from .dropout_mask import dropout_mask
from .max_pool_gradient import max_pool2d_gradient
from .select import packing_pays, use_own_kernels
from .take_gradient import take_gradient

__all__ = [
    "batch_norm_gradient_sums",
    "batch_statistics",
    "conv2d",
    "conv2d_input_gradient",
    "conv2d_weight_gradient",
    "dropout_mask",
    "max_pool2d_gradient",
    "packing_pays",
    "relu",
    "take_gradient",
    "use_own_kernels",
]
