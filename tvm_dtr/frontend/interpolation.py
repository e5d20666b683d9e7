"""Interpolation along one axis as a matrix: what ONNX's Resize says, in numbers.

An element of the result lies at a place x of the input, as the coordinate transformation maps it;
its value is a weighted sum of the elements around x. Elements beyond the ends repeat the last one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

MODES = ("nearest", "linear", "cubic")


@dataclass(frozen=True)
class Interpolation:
    """The attributes of Resize that are the same for all axes."""

    mode: str = "nearest"
    transformation: str = "half_pixel"
    nearest: str = "round_prefer_floor"
    cubic_a: float = -0.75
    exclude_outside: bool = False
    antialias: bool = False

    @property
    def crops(self) -> bool:
        return self.transformation == "tf_crop_and_resize"

    def weights(
        self, before: int, after: int, scale: float, region: tuple[float, float] = (0.0, 1.0)
    ) -> tuple[np.ndarray, np.ndarray]:
        """(after, before) weights, and which of the ``after`` elements lie outside of the input
        when cropping: their rows are zero.

        ``scale`` is the ratio of the sizes, not rounded; ``region`` what is cropped, as parts of
        the input. Raises ValueError for unknown modes.
        """
        x = self._places(before, after, scale, region)
        if self.mode == "nearest":
            at, weights = self._nearest(x)[:, None], np.ones((after, 1))
        else:
            at, weights = self._filtered(x, min(scale, 1.0) if self.antialias else 1.0)
        if self.exclude_outside:
            weights = np.where((at >= 0) & (at < before), weights, 0)
            weights = weights / weights.sum(1, keepdims=True)
        matrix = np.zeros((after, before))
        rows = np.arange(after)[:, None]
        np.add.at(matrix, (rows, np.clip(at, 0, before - 1)), weights)
        outside = (x < 0) | (x > before - 1) if self.crops else np.zeros(after, bool)
        matrix[outside] = 0
        return matrix, outside

    def _places(
        self, before: int, after: int, scale: float, region: tuple[float, float]
    ) -> np.ndarray:
        """Where in the input each element of the result lies."""
        i = np.arange(after, dtype="float64")
        exact = scale * before  # the size of the result before it is rounded
        half = (i + 0.5) / scale - 0.5
        if self.transformation == "half_pixel":
            return half
        if self.transformation == "pytorch_half_pixel":
            return half if exact != 1 else np.full(after, -0.5)
        if self.transformation == "half_pixel_symmetric":
            return before / 2 * (1 - after / exact) + (i + 0.5) / scale - 0.5
        if self.transformation == "asymmetric":
            return i / scale
        if self.transformation == "align_corners":
            return i * (before - 1) / (exact - 1) if exact != 1 else np.zeros(after)
        if self.crops:
            start, end = region
            steps = i / (exact - 1) if exact != 1 else np.full(after, 0.5)
            return (start + steps * (end - start)) * (before - 1)
        raise ValueError(f"coordinate_transformation_mode is '{self.transformation}'")

    def _nearest(self, x: np.ndarray) -> np.ndarray:
        rounding: dict[str, Callable[[np.ndarray], np.ndarray]] = {
            "round_prefer_floor": lambda x: np.ceil(x - 0.5),
            "round_prefer_ceil": lambda x: np.floor(x + 0.5),
            "floor": np.floor,
            "ceil": np.ceil,
        }
        if self.nearest not in rounding:
            raise ValueError(f"nearest_mode is '{self.nearest}', expected {', '.join(rounding)}")
        return rounding[self.nearest](x).astype("int64")

    def _filtered(self, x: np.ndarray, stretch: float) -> tuple[np.ndarray, np.ndarray]:
        """Positions around each place and their weights; a filter for antialiasing is as much
        wider as the result is smaller, and its weights sum to one again."""
        kernels = {"linear": (1, _triangle), "cubic": (2, self._cubic)}
        if self.mode not in kernels:
            raise ValueError(f"mode is '{self.mode}', expected {', '.join(MODES)}")
        radius, kernel = kernels[self.mode]
        first = int(np.floor(-radius / stretch)) + 1
        at = np.ceil(x).astype("int64")[:, None] - 1 + np.arange(first, 2 - first)
        weights = kernel(np.abs(at - x[:, None]) * stretch)
        return at, weights / weights.sum(1, keepdims=True)

    def _cubic(self, distance: np.ndarray) -> np.ndarray:
        """Cubic convolution (Keys, 1981) with its parameter a."""
        a, d = self.cubic_a, distance
        near = ((a + 2) * d - (a + 3)) * d * d + 1
        far = ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
        return np.where(d <= 1, near, np.where(d < 2, far, 0))


def _triangle(distance: np.ndarray) -> np.ndarray:
    return np.clip(1 - distance, 0, None)
