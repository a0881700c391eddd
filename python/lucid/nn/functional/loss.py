"""Loss functions; ``size_average`` and ``reduce`` are PyTorch's old spelling of ``reduction``."""

from __future__ import annotations

import math
import warnings

from lucid import _C
from lucid import functions as fn
from lucid._C import Tensor
from lucid.functions.arguments import user_stacklevel
from lucid.functions.precision import autocast_as
from lucid.nn.functional._arguments import from_front, require_tensors
from lucid.nn.functional.activation import log_softmax, logsigmoid
from lucid.nn.functional.distance import cosine_similarity, pairwise_distance

# PyTorch's bound of the logarithms in the binary cross-entropy.
_SMALLEST_LOG = -100.0


def resolve_reduction(size_average: bool | None, reduce: bool | None, reduction: str) -> str:
    """Turn the old pair of flags into a reduction's name, as PyTorch does."""
    if size_average is None and reduce is None:
        return reduction
    if reduce is False:
        return "none"
    return "sum" if size_average is False else "mean"


def _reduced(op: str, loss: Tensor, reduction: str) -> Tensor:
    """Apply "none", "mean" or "sum" over all elements."""
    if reduction == "mean":
        return fn.mean(loss)
    if reduction == "sum":
        return fn.sum(loss)
    _check_reduction(op, reduction)
    return loss


def _check_reduction(op: str, reduction: str) -> None:
    if reduction not in ("none", "mean", "sum"):
        raise _C.UserError(f"{op}: reduction must be 'none', 'mean' or 'sum': got {reduction!r}")


def _warn_if_broadcast(op: str, input: Tensor, target: Tensor) -> None:
    """A target of another shape is nearly always a mistake, so PyTorch warns and so do we."""
    if tuple(input.shape) != tuple(target.shape):
        warnings.warn(
            f"{op}: target shape {tuple(target.shape)} differs from input shape "
            f"{tuple(input.shape)}; the result is broadcast",
            UserWarning,
            stacklevel=user_stacklevel(),
        )


# ---------------------------------------------------------------- classes


def _classes_last(input: Tensor) -> tuple[Tensor, tuple[int, ...]]:
    """Return the logits as (rows, C) and the shape that one value a row has in PyTorch."""
    if input.ndim == 1:
        return input.reshape(1, -1), ()
    if input.ndim == 2:
        return input, (input.shape[0],)
    classes = input.shape[1]
    rows = (input.shape[0], *input.shape[2:])
    moved = input.permute(0, *range(2, input.ndim), 1)
    return moved.reshape(math.prod(rows), classes), rows


def _check_class_target(op: str, target: Tensor, rows: tuple[int, ...], input: Tensor) -> None:
    if tuple(target.shape) != rows:
        raise _C.ShapeError(
            f"{op}: target must have shape {rows} for input {tuple(input.shape)}: "
            f"got {tuple(target.shape)}"
        )


def _cross_entropy_probabilities(
    input: Tensor, target: Tensor, weight: Tensor | None, reduction: str, label_smoothing: float
) -> Tensor:
    """-sum_c w_c t_c log softmax(x)_c, its mean taken over everything but the classes."""
    axis = 0 if input.ndim == 1 else 1
    classes = input.shape[axis]
    if label_smoothing > 0.0:
        target = target * (1.0 - label_smoothing) + label_smoothing / classes
    product = log_softmax(input, dim=axis) * target
    if weight is not None:
        product = product * weight.reshape(
            tuple(classes if index == axis else 1 for index in range(input.ndim))
        )
    loss = -fn.sum(product, dim=axis)
    if reduction != "mean":
        return _reduced("cross_entropy", loss, reduction)
    return fn.sum(loss) / (input.numel() // classes if classes else 0)


@autocast_as("float32")
def cross_entropy(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    ignore_index: int = -100,
    reduce: bool | None = None,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Tensor:
    """Negative log of the probability that softmax(input) gives to the target.

    Args:
        input: (C,), (N, C) or (N, C, d1, ...), logits, floating point.
        target: class indices (), (N,) or (N, d1, ...), int32 or int64; or probabilities
            in the shape and dtype of ``input``.
        weight: (C,), a factor for each class; None means 1.
        ignore_index: rows with this class add nothing (class indices only).
        reduction: "none", "sum", or "mean" over the rows' weights.
        label_smoothing: 0 to 1, the share of the uniform distribution in the target.

    Returns: () or, for "none", the shape of a class-index target.
        The mean over no rows is nan, with gradient 0.
    Raises: ShapeError if shapes do not fit, OutOfRangeError for a class outside [0, C),
        UserError for another ``reduction`` or ``label_smoothing``.
    Source: Szegedy and others 2015, arXiv:1512.00567, section 7 (label smoothing).
    """
    op = "cross_entropy"
    require_tensors(op, input=input, target=target)
    reduction = resolve_reduction(size_average, reduce, reduction)
    _check_reduction(op, reduction)
    if not 0.0 <= label_smoothing <= 1.0:
        raise _C.UserError(f"{op}: label_smoothing must be between 0 and 1: got {label_smoothing}")
    if input.ndim == 0:
        raise _C.ShapeError(f"{op}: input must have a class axis: got shape ()")
    if target.is_floating_point() and tuple(target.shape) == tuple(input.shape):
        return _cross_entropy_probabilities(input, target, weight, reduction, label_smoothing)
    if target.is_floating_point():
        raise _C.DtypeError(
            f"{op}: target must be int32 or int64 class indices, or probabilities in the "
            f"shape {tuple(input.shape)}: got {target.dtype} of shape {tuple(target.shape)}"
        )
    logits, rows = _classes_last(input)
    _check_class_target(op, target, rows, input)
    loss, _ = _C.emit(
        op,
        logits,
        target if target.ndim == 1 else target.reshape(-1),
        weight,
        ignore_index=ignore_index,
        label_smoothing=float(label_smoothing),
        reduction=reduction,
    )
    if reduction == "none" and len(rows) != 1:
        return loss.reshape(rows)
    return loss


@autocast_as("float32")
def nll_loss(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    ignore_index: int = -100,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """-w_t * input_t, input being log probabilities; arguments as :func:`cross_entropy`.

    Returns: () or, for "none", the shape of ``target``.
    Raises: ShapeError if shapes do not fit, OutOfRangeError for a class outside [0, C).
    """
    op = "nll_loss"
    require_tensors(op, input=input, target=target)
    reduction = resolve_reduction(size_average, reduce, reduction)
    _check_reduction(op, reduction)
    scores, rows = _classes_last(input)
    _check_class_target(op, target, rows, input)
    classes = scores.shape[1]
    flat = target.reshape(-1)
    is_counted = flat != ignore_index
    chosen = from_front(op, fn.where(is_counted, flat, fn.zeros_like(flat)), classes)
    picked = _C.emit("gather", scores, chosen.unsqueeze(1), dim=1).squeeze(1)
    if weight is None:
        factor = is_counted.to(input.dtype)
    else:
        factor = fn.where(is_counted, _C.emit("take", weight, chosen, dim=0), 0.0)
    loss = -(fn.where(is_counted, picked, 0.0) * factor)
    if reduction == "none":
        return loss.reshape(rows)
    total = fn.sum(loss)
    return total if reduction == "sum" else total / fn.sum(factor)


# ---------------------------------------------------------------- regression


def _weighted(op: str, loss: Tensor, weight: Tensor | None, reduction: str) -> Tensor:
    """Reduce ``loss``; with weights the mean divides by their sum."""
    if weight is None:
        return _reduced(op, loss, reduction)
    weighted = loss * weight
    if reduction != "mean":
        return _reduced(op, weighted, reduction)
    return fn.sum(weighted) / fn.sum(fn.broadcast_to(weight, tuple(loss.shape)))


@autocast_as("float32")
def mse_loss(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    weight: Tensor | None = None,
) -> Tensor:
    """(input - target)^2.

    Args:
        input, target: any shapes that broadcast; other than equal ones warn.
        weight: factors that broadcast to the loss; the mean divides by their sum.
        reduction: "none", "mean" or "sum" over all elements.

    Returns: () or, for "none", the broadcast shape.
    """
    require_tensors("mse_loss", input=input, target=target)
    _warn_if_broadcast("mse_loss", input, target)
    reduction = resolve_reduction(size_average, reduce, reduction)
    return _weighted("mse_loss", fn.square(input - target), weight, reduction)


@autocast_as("float32")
def l1_loss(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    weight: Tensor | None = None,
) -> Tensor:
    """\\|input - target\\|; arguments as :func:`mse_loss`."""
    require_tensors("l1_loss", input=input, target=target)
    _warn_if_broadcast("l1_loss", input, target)
    reduction = resolve_reduction(size_average, reduce, reduction)
    return _weighted("l1_loss", fn.abs(input - target), weight, reduction)


@autocast_as("float32")
def smooth_l1_loss(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    beta: float = 1.0,
) -> Tensor:
    """d^2 / (2 beta) where d < ``beta``, else d - beta / 2, d = |input - target|.

    Returns: () or, for "none", the broadcast shape.
    Raises: UserError if ``beta`` < 0.
    Source: Girshick 2015, arXiv:1504.08083, equation 3.
    """
    require_tensors("smooth_l1_loss", input=input, target=target)
    if beta < 0:
        raise _C.UserError(f"smooth_l1_loss: beta must not be negative: got {beta}")
    _warn_if_broadcast("smooth_l1_loss", input, target)
    reduction = resolve_reduction(size_average, reduce, reduction)
    difference = input - target
    distance = fn.abs(difference)
    if beta == 0:
        return _reduced("smooth_l1_loss", distance, reduction)
    near = fn.square(difference) * (0.5 / beta)
    loss = fn.where(distance < beta, near, distance - 0.5 * beta)
    return _reduced("smooth_l1_loss", loss, reduction)


@autocast_as("float32")
def huber_loss(
    input: Tensor,
    target: Tensor,
    reduction: str = "mean",
    delta: float = 1.0,
    weight: Tensor | None = None,
) -> Tensor:
    """d^2 / 2 where d <= ``delta``, else delta * (d - delta / 2), d = |input - target|.

    Returns: () or, for "none", the broadcast shape.
    Raises: UserError if ``delta`` <= 0.
    Source: Huber 1964, Annals of Mathematical Statistics 35, equation 3.
    """
    require_tensors("huber_loss", input=input, target=target)
    if delta <= 0:
        raise _C.UserError(f"huber_loss: delta must be positive: got {delta}")
    _warn_if_broadcast("huber_loss", input, target)
    difference = input - target
    distance = fn.abs(difference)
    near = fn.square(difference) * 0.5
    far = (distance - 0.5 * delta) * delta
    return _weighted("huber_loss", fn.where(distance <= delta, near, far), weight, reduction)


# ---------------------------------------------------------------- probabilities


def _bounded_log(x: Tensor, log: Tensor) -> Tensor:
    """max(log, -100) where x > 0, and -100 with gradient 0 at x = 0."""
    return fn.where(x == 0, _SMALLEST_LOG, fn.clamp(log, min=_SMALLEST_LOG))


@autocast_as("float32")
def binary_cross_entropy(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """-(t log x + (1 - t) log(1 - x)), the logarithms taken as at least -100.

    Args:
        input: any shape, probabilities from 0 to 1.
        target: the same shape, 0 to 1.
        weight: factors that broadcast to the loss.

    Returns: () or, for "none", the shape of ``input``.
    Raises: ShapeError if the shapes differ.
    """
    op = "binary_cross_entropy"
    require_tensors(op, input=input, target=target)
    _check_same_shape(op, input, target)
    reduction = resolve_reduction(size_average, reduce, reduction)
    rest = 1.0 - input
    # The inner where keeps the logarithm's gradient finite where the bound is taken.
    log_input = _bounded_log(input, fn.log(fn.where(input == 0, 1.0, input)))
    log_rest = _bounded_log(rest, fn.log1p(-fn.where(rest == 0, 0.0, input)))
    loss = -(target * log_input + (1.0 - target) * log_rest)
    if weight is not None:
        loss = loss * weight
    return _reduced(op, loss, reduction)


def _check_same_shape(op: str, input: Tensor, target: Tensor) -> None:
    if tuple(input.shape) != tuple(target.shape):
        raise _C.ShapeError(
            f"{op}: target must have the shape of input: "
            f"got {tuple(target.shape)} and {tuple(input.shape)}"
        )


@autocast_as("float32")
def binary_cross_entropy_with_logits(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    pos_weight: Tensor | None = None,
) -> Tensor:
    """Binary cross-entropy of sigmoid(input), without overflow for any logit.

    (1 - t) x - (1 + (pos_weight - 1) t) log sigmoid(x).

    Args:
        input: any shape, logits.
        target: the same shape, 0 to 1.
        weight: factors that broadcast to the loss.
        pos_weight: factors of the positive part, broadcast to the loss.

    Returns: () or, for "none", the shape of ``input``.
    Raises: ShapeError if the shapes differ.
    """
    op = "binary_cross_entropy_with_logits"
    require_tensors(op, input=input, target=target)
    _check_same_shape(op, input, target)
    reduction = resolve_reduction(size_average, reduce, reduction)
    log_probability = logsigmoid(input)
    if pos_weight is not None:
        log_probability = log_probability * ((pos_weight - 1.0) * target + 1.0)
    loss = (1.0 - target) * input - log_probability
    if weight is not None:
        loss = loss * weight
    return _reduced(op, loss, reduction)


@autocast_as("float32")
def kl_div(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    log_target: bool = False,
) -> Tensor:
    """target * (log target - input), the Kullback-Leibler divergence's terms.

    Args:
        input: any shape, log probabilities.
        target: the same shape, probabilities, or their logarithms if ``log_target``.
        reduction: as elsewhere, or "batchmean": the sum divided by the first axis' size.

    Returns: () or, for "none", the broadcast shape. A target of 0 gives 0.
    """
    require_tensors("kl_div", input=input, target=target)
    reduction = resolve_reduction(size_average, reduce, reduction)
    if log_target:
        loss = fn.exp(target) * (target - input)
    else:
        is_zero = target == 0
        log_probability = fn.log(fn.where(is_zero, 1.0, target))
        loss = target * log_probability - target * input
    if reduction == "batchmean":
        return fn.sum(loss) / input.shape[0]
    return _reduced("kl_div", loss, reduction)


@autocast_as("float32")
def poisson_nll_loss(
    input: Tensor,
    target: Tensor,
    log_input: bool = True,
    full: bool = False,
    size_average: bool | None = None,
    eps: float = 1e-8,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """exp(x) - t x, or x - t log(x + eps) if not ``log_input``.

    Args:
        input, target: shapes that broadcast; ``target`` are counts.
        full: add Stirling's t log t - t + log(2 pi t) / 2 where t > 1.

    Returns: () or, for "none", the broadcast shape.
    """
    require_tensors("poisson_nll_loss", input=input, target=target)
    reduction = resolve_reduction(size_average, reduce, reduction)
    if log_input:
        loss = fn.exp(input) - target * input
    else:
        loss = input - target * fn.log(input + eps)
    if full:
        large = fn.where(target > 1, target, 1.0)
        stirling = large * fn.log(large) - large + 0.5 * fn.log(large * (2.0 * math.pi))
        loss = loss + fn.where(target > 1, stirling, 0.0)
    return _reduced("poisson_nll_loss", loss, reduction)


def gaussian_nll_loss(
    input: Tensor,
    target: Tensor,
    var: Tensor | float,
    full: bool = False,
    eps: float = 1e-6,
    reduction: str = "mean",
) -> Tensor:
    """(log v + (x - t)^2 / v) / 2, v the variance taken as at least ``eps``.

    Args:
        input, target: shapes that broadcast.
        var: variances, of the input's shape or with its last axis missing or of size 1.
        full: add log(2 pi) / 2.

    Returns: () or, for "none", the broadcast shape. The bound on v has no gradient.
    """
    require_tensors("gaussian_nll_loss", input=input, target=target)
    variance = var if isinstance(var, Tensor) else fn.full_like(input, float(var))
    shape = tuple(variance.shape)
    if shape != tuple(input.shape) and shape == tuple(input.shape[:-1]):
        variance = variance.unsqueeze(-1)
    # The value is bounded, the gradient goes to every variance, as in PyTorch.
    fixed = variance.detach()
    bounded = variance + (fn.clamp(fixed, min=eps) - fixed)
    loss = (fn.log(bounded) + fn.square(input - target) / bounded) * 0.5
    if full:
        loss = loss + 0.5 * math.log(2.0 * math.pi)
    return _reduced("gaussian_nll_loss", loss, reduction)


# ---------------------------------------------------------------- margins


@autocast_as("float32")
def hinge_embedding_loss(
    input: Tensor,
    target: Tensor,
    margin: float = 1.0,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """x where the target is 1, max(0, margin - x) where it is -1.

    Returns: () or, for "none", the broadcast shape.
    """
    require_tensors("hinge_embedding_loss", input=input, target=target)
    reduction = resolve_reduction(size_average, reduce, reduction)
    negative = fn.where(target != 1, _C.emit("relu", margin - input), 0.0)
    positive = fn.where(target != -1, input, 0.0)
    return _reduced("hinge_embedding_loss", negative + positive, reduction)


@autocast_as("float32")
def margin_ranking_loss(
    input1: Tensor,
    input2: Tensor,
    target: Tensor,
    margin: float = 0.0,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """max(0, -target * (input1 - input2) + margin), target 1 or -1.

    Returns: () or, for "none", the broadcast shape.
    """
    require_tensors("margin_ranking_loss", input1=input1, input2=input2, target=target)
    reduction = resolve_reduction(size_average, reduce, reduction)
    loss = _C.emit("relu", (input2 - input1) * target + margin)
    return _reduced("margin_ranking_loss", loss, reduction)


@autocast_as("float32")
def soft_margin_loss(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """log(1 + exp(-target * input)), target 1 or -1.

    Returns: () or, for "none", the broadcast shape.
    """
    require_tensors("soft_margin_loss", input=input, target=target)
    reduction = resolve_reduction(size_average, reduce, reduction)
    return _reduced("soft_margin_loss", -logsigmoid(input * target), reduction)


@autocast_as("float32")
def cosine_embedding_loss(
    input1: Tensor,
    input2: Tensor,
    target: Tensor,
    margin: float = 0.0,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """1 - cos(input1, input2) where the target is 1, max(0, cos - margin) where it is -1.

    Args:
        input1, input2: (N, D) or (D,).
        target: (N,) or ().

    Returns: () or, for "none", the shape of ``target``.
    """
    require_tensors("cosine_embedding_loss", input1=input1, input2=input2, target=target)
    reduction = resolve_reduction(size_average, reduce, reduction)
    similarity = cosine_similarity(input1, input2, dim=-1)
    apart = _C.emit("relu", similarity - margin)
    loss = fn.where(target == 1, 1.0 - similarity, fn.where(target == -1, apart, 0.0))
    return _reduced("cosine_embedding_loss", loss, reduction)


@autocast_as("float32")
def triplet_margin_loss(
    anchor: Tensor,
    positive: Tensor,
    negative: Tensor,
    margin: float = 1.0,
    p: float = 2.0,
    eps: float = 1e-6,
    swap: bool = False,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """max(0, d(anchor, positive) - d(anchor, negative) + margin), d the p-norm distance.

    Args:
        anchor, positive, negative: (N, D) or (D,).
        swap: use the smaller of d(anchor, negative) and d(positive, negative).

    Returns: () or, for "none", (N,).
    Source: Balntas and others 2016, BMVC, section 2.
    """
    require_tensors("triplet_margin_loss", anchor=anchor, positive=positive, negative=negative)
    reduction = resolve_reduction(size_average, reduce, reduction)
    to_positive = pairwise_distance(anchor, positive, p, eps)
    to_negative = pairwise_distance(anchor, negative, p, eps)
    if swap:
        to_negative = fn.minimum(to_negative, pairwise_distance(positive, negative, p, eps))
    loss = _C.emit("relu", to_positive - to_negative + margin)
    return _reduced("triplet_margin_loss", loss, reduction)
