"""Optimizers: update rules written as Relay, compiled into the step."""

from .optimizer import Optimizer, Update, check_optimizer
from .sgd import SGD

__all__ = ["SGD", "Optimizer", "Update", "check_optimizer"]
