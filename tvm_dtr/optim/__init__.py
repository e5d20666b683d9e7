"""Optimizers: update rules written as Relay, compiled into the step; and learning rates."""

from .adagrad import Adagrad
from .adam import Adam, AdamW
from .clipping import GRADIENT_NORM, Clipping
from .lion import Lion
from .optimizer import LEARNING_RATE, Optimizer, StepScalars, Update, check_optimizer
from .rmsprop import RMSprop
from .sgd import SGD

__all__ = [
    "GRADIENT_NORM",
    "LEARNING_RATE",
    "OPTIMIZERS",
    "SGD",
    "Adagrad",
    "Adam",
    "AdamW",
    "Clipping",
    "Lion",
    "Optimizer",
    "RMSprop",
    "StepScalars",
    "Update",
    "check_optimizer",
]

# By the names of the command line.
OPTIMIZERS: dict[str, type] = {
    "sgd": SGD,
    "adam": Adam,
    "adamw": AdamW,
    "adagrad": Adagrad,
    "rmsprop": RMSprop,
    "lion": Lion,
}
