"""Optimizers and learning-rate schedulers."""

from lucid.optim import lr_scheduler, swa_utils
from lucid.optim.adam import Adam, Adamax, AdamW, NAdam, RAdam
from lucid.optim.adaptive import Adadelta, Adagrad, Lion, RMSprop
from lucid.optim.optimizer import Optimizer
from lucid.optim.sgd import SGD

__all__ = [
    "Adadelta",
    "Adagrad",
    "Adam",
    "AdamW",
    "Adamax",
    "Lion",
    "NAdam",
    "Optimizer",
    "RAdam",
    "RMSprop",
    "SGD",
    "lr_scheduler",
    "swa_utils",
]
