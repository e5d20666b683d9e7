"""Figures of an evaluation: functions of a batch's outputs and inputs.

A metric is called as ``metric(outputs, inputs)`` with mappings by name and returns a number for the
batch, or an array with a value for each row; the figure is the mean over all rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from .errors import UsageError

Metric = Callable[[Mapping[str, Any], Mapping[str, Any]], Any]


def _logits(outputs: Mapping[str, Any], labels: np.ndarray) -> np.ndarray:
    """The first output with the class axis last: (rows, classes)."""
    logits = next(iter(outputs.values()))
    axis = 1 if logits.ndim > 2 else logits.ndim - 1
    return np.moveaxis(logits, axis, -1).reshape(labels.size, -1)


def accuracy(outputs: Mapping[str, Any], inputs: Mapping[str, Any]) -> np.ndarray:
    """Share of rows whose largest logit is that of their label."""
    labels = np.asarray(inputs["labels"])
    return np.argmax(_logits(outputs, labels), axis=-1) == labels.reshape(-1)


def cross_entropy(outputs: Mapping[str, Any], inputs: Mapping[str, Any]) -> np.ndarray:
    """Softmax cross entropy of each row, in nats."""
    labels = np.asarray(inputs["labels"])
    logits = _logits(outputs, labels).astype("float64")
    logits -= logits.max(axis=-1, keepdims=True)
    chosen = np.take_along_axis(logits, labels.reshape(-1, 1), axis=-1)[:, 0]
    return np.log(np.exp(logits).sum(axis=-1)) - chosen


def mse(outputs: Mapping[str, Any], inputs: Mapping[str, Any]) -> np.ndarray:
    """Squared distance to the target, by row the mean of its elements."""
    target = np.asarray(inputs["target"], "float64")
    off = np.square(next(iter(outputs.values())) - target)
    return off.reshape(len(target), -1).mean(axis=-1) if off.ndim else off


def output(outputs: Mapping[str, Any], inputs: Mapping[str, Any]) -> float:
    """The model's own loss: its first output."""
    return float(np.asarray(next(iter(outputs.values()))).reshape(()))


METRICS: dict[str, Metric] = {"accuracy": accuracy, "perplexity": cross_entropy}
LOSSES: dict[str, Metric] = {"cross_entropy": cross_entropy, "mse": mse, "output": output}
FINISH: dict[str, Callable[[float], float]] = {"perplexity": lambda mean: float(np.exp(mean))}


def find_metrics(names: Any, loss: str) -> dict[str, Metric]:
    """Metrics by name: ``loss``, those of METRICS, and functions, under their own names.

    Raises UsageError for a name that is unknown or does not suit the loss.
    """
    found: dict[str, Metric] = {}
    for given in names:
        if callable(given):
            found[getattr(given, "__name__", "metric")] = given
        elif given == "loss":
            found["loss"] = LOSSES[loss]
        elif given not in METRICS:
            raise UsageError(
                f"unknown metric {given!r}; there are loss, {', '.join(METRICS)} and functions "
                "of (outputs, inputs)"
            )
        elif loss != "cross_entropy":
            raise UsageError(f"metric {given!r} needs labels: the program's loss is {loss}")
        else:
            found[given] = METRICS[given]
    return found
