"""Relay ops with kernels of our own; importing this package registers them."""

from .max_pool_gradient import max_pool2d_gradient

__all__ = ["max_pool2d_gradient"]
