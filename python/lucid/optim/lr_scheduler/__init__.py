"""Learning-rate schedulers."""

from lucid.optim.lr_scheduler.base import LRScheduler
from lucid.optim.lr_scheduler.combined import ChainedScheduler, ReduceLROnPlateau, SequentialLR
from lucid.optim.lr_scheduler.cycle import CosineAnnealingWarmRestarts, CyclicLR, OneCycleLR
from lucid.optim.lr_scheduler.decay import (
    ConstantLR,
    CosineAnnealingLR,
    ExponentialLR,
    LambdaLR,
    LinearLR,
    MultiplicativeLR,
    MultiStepLR,
    PolynomialLR,
    StepLR,
)

__all__ = [
    "ChainedScheduler",
    "ConstantLR",
    "CosineAnnealingLR",
    "CosineAnnealingWarmRestarts",
    "CyclicLR",
    "ExponentialLR",
    "LRScheduler",
    "LambdaLR",
    "LinearLR",
    "MultiStepLR",
    "MultiplicativeLR",
    "OneCycleLR",
    "PolynomialLR",
    "ReduceLROnPlateau",
    "SequentialLR",
    "StepLR",
]
