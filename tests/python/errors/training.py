"""What schedules, data loaders and the helpers beside them refuse."""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Callable
from typing import Any

import lucid
from lucid import nn, optim
from lucid.optim import lr_scheduler
from lucid.utils import data

from .case import ErrorCase, f32, leaf


def sgd(**options: Any) -> optim.SGD:
    return optim.SGD([leaf(2)], **{"lr": 0.1, **options})


def numbers(count: int = 4) -> data.TensorDataset:
    return data.TensorDataset(f32(count))


class Stream(data.IterableDataset[Any]):
    """Defines nothing."""


class Map(data.Dataset[Any]):
    """Defines nothing."""


class Calling(data.Dataset[Any]):
    """Calls a function for its only sample."""

    def __init__(self, function: Callable[..., Any], argument: float) -> None:
        self.call = function, argument

    def __len__(self) -> int:
        return 1

    def __getitem__(self, index: int) -> Any:
        function, argument = self.call
        return function(argument)


class Order(data.Sampler[Any]):
    """Defines nothing."""


class Schedule(lr_scheduler.LRScheduler):
    """Defines nothing."""


def infinite_gradient() -> None:
    parameter = leaf(1)
    parameter.grad = f32(1) + float("inf")
    nn.utils.clip_grad_norm_([parameter], 1.0, error_if_nonfinite=True)


def one_cycle(**options: Any) -> lr_scheduler.OneCycleLR:
    chosen = {"max_lr": 1.0, "total_steps": 3, **options}
    return lr_scheduler.OneCycleLR(sgd(momentum=0.9), **chosen)


def one_cycle_too_long() -> None:
    schedule = one_cycle(total_steps=1)
    for _ in range(3):
        schedule.step()


def plateau(**options: Any) -> lr_scheduler.ReduceLROnPlateau:
    return lr_scheduler.ReduceLROnPlateau(sgd(), **options)


CASES = [
    ErrorCase(
        "schedule: no optimizer",
        lambda: lr_scheduler.StepLR(3, 1),
        lucid.ArgumentTypeError,
        "StepLR: expected an Optimizer: got int",
    ),
    ErrorCase(
        "schedule: resumed without a rate",
        lambda: lr_scheduler.StepLR(sgd(), 1, last_epoch=3),
        lucid.UserError,
        (
            "StepLR: 'initial_lr' is missing in param_groups[0]; it must be there when "
            "last_epoch is given"
        ),
    ),
    ErrorCase(
        "schedule: no get_lr",
        lambda: Schedule(sgd()),
        lucid.UnsupportedError,
        "Schedule: get_lr is not defined",
    ),
    ErrorCase(
        "SequentialLR: milestones",
        lambda: lr_scheduler.SequentialLR((o := sgd()), [lr_scheduler.StepLR(o, 1)], [1]),
        lucid.UserError,
        "SequentialLR: schedulers must be one more than milestones: got 1 and 1",
    ),
    ErrorCase(
        "SequentialLR: optimizers",
        lambda: lr_scheduler.SequentialLR(sgd(), [lr_scheduler.StepLR(sgd(), 1)], []),
        lucid.UserError,
        "SequentialLR: all schedulers must belong to the same optimizer",
    ),
    ErrorCase(
        "ChainedScheduler: nothing",
        lambda: lr_scheduler.ChainedScheduler([]),
        lucid.UserError,
        "ChainedScheduler: no schedulers are given; give at least one",
    ),
    ErrorCase(
        "ChainedScheduler: optimizers",
        lambda: lr_scheduler.ChainedScheduler(
            [lr_scheduler.StepLR(sgd(), 1), lr_scheduler.StepLR(sgd(), 1)]
        ),
        lucid.UserError,
        "ChainedScheduler: all schedulers must belong to the same optimizer",
    ),
    ErrorCase(
        "ReduceLROnPlateau: factor",
        lambda: plateau(factor=1.0),
        lucid.UserError,
        "ReduceLROnPlateau: factor must be less than 1: got 1.0",
    ),
    ErrorCase(
        "ReduceLROnPlateau: mode",
        lambda: plateau(mode="least"),
        lucid.UserError,
        "ReduceLROnPlateau: mode must be 'min' or 'max': got 'least'",
    ),
    ErrorCase(
        "ReduceLROnPlateau: threshold_mode",
        lambda: plateau(threshold_mode="some"),
        lucid.UserError,
        "ReduceLROnPlateau: threshold_mode must be 'rel' or 'abs': got 'some'",
    ),
    ErrorCase(
        "ReduceLROnPlateau: min_lr",
        lambda: plateau(min_lr=[0.0, 0.0]),
        lucid.UserError,
        "ReduceLROnPlateau: min_lr must be one number or 1: got 2",
    ),
    ErrorCase(
        "CosineAnnealingWarmRestarts: T_0",
        lambda: lr_scheduler.CosineAnnealingWarmRestarts(sgd(), 0),
        lucid.UserError,
        "CosineAnnealingWarmRestarts: T_0 must be a positive integer: got 0",
    ),
    ErrorCase(
        "CosineAnnealingWarmRestarts: T_mult",
        lambda: lr_scheduler.CosineAnnealingWarmRestarts(sgd(), 1, 0),
        lucid.UserError,
        "CosineAnnealingWarmRestarts: T_mult must be an integer of 1 or more: got 0",
    ),
    ErrorCase(
        "CosineAnnealingWarmRestarts: epoch",
        lambda: lr_scheduler.CosineAnnealingWarmRestarts(sgd(), 1).step(-1),
        lucid.UserError,
        "CosineAnnealingWarmRestarts: epoch must not be negative: got -1",
    ),
    ErrorCase(
        "OneCycleLR: total_steps",
        lambda: one_cycle(total_steps=0),
        lucid.UserError,
        "OneCycleLR: total_steps must be a positive integer: got 0",
    ),
    ErrorCase(
        "OneCycleLR: no steps",
        lambda: one_cycle(total_steps=None),
        lucid.UserError,
        (
            "OneCycleLR: the number of steps is not known; give total_steps, or epochs and "
            "steps_per_epoch"
        ),
    ),
    ErrorCase(
        "OneCycleLR: pct_start",
        lambda: one_cycle(pct_start=2.0),
        lucid.UserError,
        "OneCycleLR: pct_start must be from 0 to 1: got 2.0",
    ),
    ErrorCase(
        "OneCycleLR: anneal_strategy",
        lambda: one_cycle(anneal_strategy="log"),
        lucid.UserError,
        "OneCycleLR: anneal_strategy must be 'cos' or 'linear': got 'log'",
    ),
    ErrorCase(
        "OneCycleLR: max_lr",
        lambda: one_cycle(max_lr=[1.0, 1.0]),
        lucid.UserError,
        "OneCycleLR: max_lr must be one number or 1: got 2",
    ),
    ErrorCase(
        "OneCycleLR: too long",
        lambda: one_cycle_too_long(),
        lucid.UserError,
        ("OneCycleLR: more steps than total_steps: got step 2 of 1; make the schedule longer"),
    ),
    ErrorCase(
        "OneCycleLR: momentum",
        lambda: lr_scheduler.OneCycleLR(optim.Adagrad([leaf(2)]), 1.0, 3),
        lucid.UserError,
        ("cycle_momentum: the optimizer has neither momentum nor betas; pass cycle_momentum=False"),
    ),
    ErrorCase(
        "CyclicLR: rates",
        lambda: lr_scheduler.CyclicLR(sgd(momentum=0.9), [0.1, 0.1], 1.0),
        lucid.UserError,
        "CyclicLR: base_lr and max_lr must be one number or 1 each",
    ),
    ErrorCase(
        "CyclicLR: mode",
        lambda: lr_scheduler.CyclicLR(sgd(momentum=0.9), 0.1, 1.0, mode="square"),
        lucid.UserError,
        (
            "CyclicLR: mode must be 'triangular', 'triangular2' or 'exp_range': got "
            "'square'; or give scale_fn"
        ),
    ),
    ErrorCase(
        "LambdaLR: functions",
        lambda: lr_scheduler.LambdaLR(sgd(), [abs, abs]),
        lucid.UserError,
        "lr_lambda: one function or 1 are needed: got 2",
    ),
    ErrorCase(
        "ConstantLR: factor",
        lambda: lr_scheduler.ConstantLR(sgd(), factor=2.0),
        lucid.UserError,
        "ConstantLR: factor must be from 0 to 1: got 2.0",
    ),
    ErrorCase(
        "LinearLR: start_factor",
        lambda: lr_scheduler.LinearLR(sgd(), start_factor=0.0),
        lucid.UserError,
        "LinearLR: start_factor must be above 0 and at most 1: got 0.0",
    ),
    ErrorCase(
        "LinearLR: end_factor",
        lambda: lr_scheduler.LinearLR(sgd(), end_factor=2.0),
        lucid.UserError,
        "LinearLR: end_factor must be from 0 to 1: got 2.0",
    ),
    ErrorCase(
        "clip_grad_norm_: not finite",
        lambda: infinite_gradient(),
        lucid.UserError,
        (
            "clip_grad_norm_: the total norm of order 2.0 is not finite: got inf; look for a "
            "gradient that is not, or pass error_if_nonfinite=False"
        ),
    ),
    ErrorCase(
        "vector_to_parameters: list",
        lambda: nn.utils.vector_to_parameters([1.0], [leaf(1)]),
        lucid.ArgumentTypeError,
        "vector_to_parameters: vec must be a Tensor: got list",
    ),
    ErrorCase(
        "vector_to_parameters: too short",
        lambda: nn.utils.vector_to_parameters(f32(1), [leaf(2)]),
        lucid.ShapeError,
        "vector_to_parameters: vec is too short: got 1 elements",
    ),
    ErrorCase(
        "pad_sequence: nothing",
        lambda: nn.utils.rnn.pad_sequence([]),
        lucid.UserError,
        "pad_sequence: expected at least one sequence: got none",
    ),
    ErrorCase(
        "pad_sequence: side",
        lambda: nn.utils.rnn.pad_sequence([f32(2)], padding_side="top"),
        lucid.UserError,
        "pad_sequence: padding_side must be left or right: got 'top'",
    ),
    ErrorCase(
        "default_collate: type",
        lambda: data.default_collate([object()]),
        lucid.ArgumentTypeError,
        (
            "default_collate: samples must be tensors, NumPy arrays, numbers, strings, dicts "
            "or lists: got object"
        ),
    ),
    ErrorCase(
        "default_collate: lengths",
        lambda: data.default_collate([[1], [1, 2]]),
        lucid.UserError,
        "default_collate: samples have different lengths; give a collate_fn",
    ),
    ErrorCase(
        "default_collate: shapes",
        lambda: data.default_collate([f32(2), f32(3)]),
        lucid.ShapeError,
        "stack: shapes differ: (2,) and (3,); reshape one first",
    ),
    ErrorCase(
        "DataLoader: sampler and shuffle",
        lambda: data.DataLoader(numbers(), shuffle=True, sampler=data.SequentialSampler(numbers())),
        lucid.UserError,
        "DataLoader: sampler excludes shuffle; give one of them",
    ),
    ErrorCase(
        "DataLoader: batch_sampler",
        lambda: data.DataLoader(
            numbers(),
            batch_size=2,
            batch_sampler=data.BatchSampler(data.SequentialSampler(numbers()), 2, False),
        ),
        lucid.UserError,
        (
            "DataLoader: batch_sampler excludes batch_size, shuffle, sampler and drop_last; "
            "give it alone"
        ),
    ),
    ErrorCase(
        "DataLoader: drop_last",
        lambda: data.DataLoader(numbers(), batch_size=None, drop_last=True),
        lucid.UserError,
        (
            "DataLoader: batch_size=None makes no batches, so drop_last has no meaning; "
            "leave it False"
        ),
    ),
    ErrorCase(
        "DataLoader: type of num_workers",
        lambda: data.DataLoader(numbers(), num_workers=2.0),
        lucid.ArgumentTypeError,
        "DataLoader: num_workers must be an int: got float",
    ),
    ErrorCase(
        "DataLoader: num_workers",
        lambda: data.DataLoader(numbers(), num_workers=-1),
        lucid.UserError,
        "DataLoader: num_workers must not be negative: got -1",
    ),
    ErrorCase(
        "DataLoader: timeout",
        lambda: data.DataLoader(numbers(), num_workers=1, timeout=-2),
        lucid.UserError,
        "DataLoader: timeout must not be negative: got -2",
    ),
    ErrorCase(
        "DataLoader: prefetch_factor alone",
        lambda: data.DataLoader(numbers(), prefetch_factor=2),
        lucid.UserError,
        "DataLoader: prefetch_factor and persistent_workers need workers; give num_workers",
    ),
    ErrorCase(
        "DataLoader: prefetch_factor",
        lambda: data.DataLoader(numbers(), num_workers=1, prefetch_factor=0),
        lucid.UserError,
        "DataLoader: prefetch_factor must be positive: got 0",
    ),
    ErrorCase(
        "DataLoader: type of timeout",
        lambda: data.DataLoader(numbers(), num_workers=1, timeout="x"),
        lucid.ArgumentTypeError,
        "DataLoader: timeout must be a number: got str",
    ),
    ErrorCase(
        "DataLoader: timeout that is nan",
        lambda: data.DataLoader(numbers(), num_workers=1, timeout=float("nan")),
        lucid.UserError,
        "DataLoader: timeout must not be negative: got nan",
    ),
    ErrorCase(
        "DataLoader: type of prefetch_factor",
        lambda: data.DataLoader(numbers(), num_workers=1, prefetch_factor=1.5),
        lucid.ArgumentTypeError,
        "DataLoader: prefetch_factor must be an int: got float",
    ),
    ErrorCase(
        "DataLoader: start method",
        lambda: data.DataLoader(numbers(), num_workers=1, multiprocessing_context="thread"),
        lucid.UserError,
        (
            "DataLoader: multiprocessing_context must be one of "
            f"{', '.join(multiprocessing.get_all_start_methods())}: got 'thread'"
        ),
    ),
    ErrorCase(
        "DataLoader: worker that ends",
        lambda: list(data.DataLoader(Calling(os._exit, 1), num_workers=1)),
        data.WorkerError,
        (
            "DataLoader: a worker's process has ended with exit code 1; num_workers=0 shows what "
            "the data set does. With the start methods 'spawn' and 'forkserver' a script starts "
            "its work behind if __name__ == '__main__'"
        ),
    ),
    ErrorCase(
        "DataLoader: worker that is late",
        lambda: list(data.DataLoader(Calling(time.sleep, 30), num_workers=1, timeout=0.25)),
        data.WorkerError,
        (
            "DataLoader: no batch came within timeout=0.25 s; give it more time, or find what the "
            "data set waits for with num_workers=0"
        ),
    ),
    ErrorCase(
        "DataLoader: shuffled stream",
        lambda: data.DataLoader(Stream(), shuffle=True),
        lucid.UserError,
        (
            "DataLoader: an IterableDataset has its own order; give no shuffle, sampler or "
            "batch_sampler"
        ),
    ),
    ErrorCase(
        "Dataset: no item",
        lambda: Map()[0],
        lucid.UnsupportedError,
        "Map: __getitem__ is not defined",
    ),
    ErrorCase(
        "IterableDataset: no iterator",
        lambda: iter(Stream()),
        lucid.UnsupportedError,
        "Stream: __iter__ is not defined",
    ),
    ErrorCase(
        "Sampler: no iterator",
        lambda: iter(Order()),
        lucid.UnsupportedError,
        "Order: __iter__ is not defined",
    ),
    ErrorCase(
        "TensorDataset: list",
        lambda: data.TensorDataset([1.0]),
        lucid.ArgumentTypeError,
        "TensorDataset: expected Tensors: got list",
    ),
    ErrorCase(
        "TensorDataset: sizes",
        lambda: data.TensorDataset(f32(2), f32(3)),
        lucid.ShapeError,
        "TensorDataset: sizes of axis 0 differ: got shapes (2,), (3,)",
    ),
    ErrorCase(
        "ConcatDataset: nothing",
        lambda: data.ConcatDataset([]),
        lucid.UserError,
        "ConcatDataset: no data sets are given; give at least one",
    ),
    ErrorCase(
        "ConcatDataset: stream",
        lambda: data.ConcatDataset([Stream()]),
        lucid.UserError,
        "ConcatDataset: an IterableDataset has no length; use a map-style data set",
    ),
    ErrorCase(
        "ConcatDataset: index",
        lambda: data.ConcatDataset([numbers()])[4],
        lucid.OutOfRangeError,
        "ConcatDataset: index out of range: got 4 for 4 samples",
    ),
    ErrorCase(
        "random_split: fractions",
        lambda: data.random_split(numbers(), [-0.5, 1.5]),
        lucid.UserError,
        "random_split: fractions must be between 0 and 1: got [-0.5, 1.5]",
    ),
    ErrorCase(
        "random_split: lengths",
        lambda: data.random_split(numbers(), [1, 2]),
        lucid.UserError,
        "random_split: the lengths do not add up to the data set: got [1, 2] for 4",
    ),
    ErrorCase(
        "RandomSampler: num_samples",
        lambda: data.RandomSampler(numbers(), num_samples=0),
        lucid.UserError,
        "RandomSampler: num_samples must be a positive integer: got 0",
    ),
    ErrorCase(
        "WeightedRandomSampler: num_samples",
        lambda: data.WeightedRandomSampler([1.0, 1.0], 0),
        lucid.UserError,
        "WeightedRandomSampler: num_samples must be a positive integer: got 0",
    ),
    ErrorCase(
        "BatchSampler: batch_size",
        lambda: data.BatchSampler(data.SequentialSampler(numbers()), 0, False),
        lucid.UserError,
        "BatchSampler: batch_size must be a positive integer: got 0",
    ),
]
