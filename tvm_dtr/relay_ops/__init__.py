"""Relay ops with kernels of our own; importing this package registers them."""

from .conv_weight_gradient import conv2d_weight_gradient
from .max_pool_gradient import max_pool2d_gradient

__all__ = ["conv2d_weight_gradient", "max_pool2d_gradient"]
