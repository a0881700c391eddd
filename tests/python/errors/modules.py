"""What nn.init and the modules refuse."""

from __future__ import annotations

from typing import Any

import lucid
from lucid import nn

from .case import ErrorCase, f32, i64


class Forwardless(nn.Module):
    """Defines no forward."""


class Uninitialised(nn.Module):
    """Assigns before it calls Module.__init__."""

    def __init__(self, value: Any) -> None:
        self.value = value


def assign(module: nn.Module, name: str, value: Any) -> None:
    setattr(module, name, value)


def backward_hooked(module: nn.Module, result: Any) -> Any:
    """A backward through a module whose backward hook returns ``result``."""
    module.register_full_backward_hook(lambda module, grad_input, grad_output: result)
    x = lucid.tensor([1]) if isinstance(module, nn.Embedding) else f32(2).requires_grad_()
    return module(x).sum().backward()


def badly_hooked(x: lucid.Tensor) -> Any:
    module = nn.ReLU()
    module.register_forward_pre_hook(lambda *args: 3, with_kwargs=True)
    return module(x)


def norm_with_buffer() -> nn.Module:
    return nn.BatchNorm1d(3)


CASES = [
    ErrorCase(
        "calculate_gain: name",
        lambda: nn.init.calculate_gain("swish"),
        lucid.UserError,
        "calculate_gain: unsupported nonlinearity 'swish'",
    ),
    ErrorCase(
        "eye_: axes",
        lambda: nn.init.eye_(f32(3)),
        lucid.ShapeError,
        "eye_: tensor must have 2 axes: got shape (3,)",
    ),
    ErrorCase(
        "dirac_: axes",
        lambda: nn.init.dirac_(f32(3)),
        lucid.ShapeError,
        (
            "dirac_: tensor must have 3 to 5 axes, the first divisible by groups: got shape "
            "(3,), groups 1"
        ),
    ),
    ErrorCase(
        "xavier_uniform_: axes",
        lambda: nn.init.xavier_uniform_(f32(3)),
        lucid.ShapeError,
        "init: fan in and fan out need a tensor of at least 2 axes: got shape (3,)",
    ),
    ErrorCase(
        "kaiming_uniform_: mode",
        lambda: nn.init.kaiming_uniform_(f32(3, 3), mode="fan"),
        lucid.UserError,
        "init: mode must be 'fan_in' or 'fan_out': got 'fan'",
    ),
    ErrorCase(
        "orthogonal_: axes",
        lambda: nn.init.orthogonal_(f32(3)),
        lucid.ShapeError,
        "orthogonal_: tensor must have at least 2 axes: got shape (3,)",
    ),
    ErrorCase(
        "Hardtanh: bounds",
        lambda: nn.Hardtanh(1.0, 0.0),
        lucid.UserError,
        "Hardtanh: max_val must be larger than min_val: got 1.0 and 0.0",
    ),
    ErrorCase(
        "to: argument",
        lambda: nn.ReLU().to(memory=3),
        lucid.ArgumentTypeError,
        "to: unknown argument: got 'memory'; use device, dtype or tensor",
    ),
    ErrorCase(
        "to: type",
        lambda: nn.ReLU().to(3),
        lucid.ArgumentTypeError,
        "to: expected a device, a dtype or a tensor: got int",
    ),
    ErrorCase(
        "to: integers",
        lambda: nn.ReLU().to(lucid.int64),
        lucid.DtypeError,
        "to: dtype is not floating: got int64; give a floating dtype",
    ),
    ErrorCase(
        "register_parameter: name's type",
        lambda: nn.ReLU().register_parameter(3, None),
        lucid.ArgumentTypeError,
        "register_parameter: the name must be a string: got int",
    ),
    ErrorCase(
        "register_parameter: dot",
        lambda: nn.ReLU().register_parameter("a.b", None),
        lucid.UserError,
        ("register_parameter: the name has a dot: got 'a.b'; entries of children are set there"),
    ),
    ErrorCase(
        "register_buffer: empty name",
        lambda: nn.ReLU().register_buffer("", None),
        lucid.UserError,
        "register_buffer: the name is empty; give one",
    ),
    ErrorCase(
        "register_buffer: taken",
        lambda: nn.ReLU().register_buffer("forward", None),
        lucid.UserError,
        (
            "register_buffer: the module has another attribute of that name: got 'forward'; "
            "choose another name"
        ),
    ),
    ErrorCase(
        "register_parameter: tensor",
        lambda: nn.ReLU().register_parameter("a", f32(2)),
        lucid.ArgumentTypeError,
        (
            "register_parameter: expected a Parameter or None for 'a': got Tensor; wrap it "
            "in nn.Parameter"
        ),
    ),
    ErrorCase(
        "register_buffer: number",
        lambda: nn.ReLU().register_buffer("a", 3),
        lucid.ArgumentTypeError,
        "register_buffer: expected a Tensor or None for 'a': got int",
    ),
    ErrorCase(
        "add_module: number",
        lambda: nn.ReLU().add_module("a", 3),
        lucid.ArgumentTypeError,
        "add_module: expected a Module or None for 'a': got int",
    ),
    ErrorCase(
        "Module: no forward",
        lambda: Forwardless()(f32(2)),
        lucid.UnsupportedError,
        "Forwardless: forward is not defined; add the method",
    ),
    ErrorCase(
        "Module: no attribute",
        lambda: Forwardless().weight,
        AttributeError,
        "'Forwardless' object has no attribute 'weight'",
    ),
    ErrorCase(
        "Module: parameter before init",
        lambda: Uninitialised(nn.Parameter(f32(2))),
        lucid.UserError,
        (
            "Uninitialised: parameters were assigned before Module.__init__(); call "
            "super().__init__() first"
        ),
    ),
    ErrorCase(
        "Module: module before init",
        lambda: Uninitialised(nn.ReLU()),
        lucid.UserError,
        (
            "Uninitialised: modules were assigned before Module.__init__(); call "
            "super().__init__() first"
        ),
    ),
    ErrorCase(
        "Module: parameter set to a number",
        lambda: assign(nn.Linear(2, 2), "weight", 3),
        lucid.ArgumentTypeError,
        "parameter 'weight': expected lucid.nn.Parameter or None: got int",
    ),
    ErrorCase(
        "Module: module set to a number",
        lambda: assign(nn.Sequential(nn.ReLU()), "0", 3),
        lucid.ArgumentTypeError,
        "child module '0': expected lucid.nn.Module or None: got int",
    ),
    ErrorCase(
        "Module: buffer set to a number",
        lambda: assign(norm_with_buffer(), "running_mean", 3),
        lucid.ArgumentTypeError,
        "buffer 'running_mean': expected lucid.Tensor or None: got int",
    ),
    ErrorCase(
        "Module: always_call",
        lambda: nn.ReLU().register_forward_hook(print, always_call=True),
        lucid.UnsupportedError,
        "register_forward_hook: always_call must be False",
    ),
    ErrorCase(
        "Module: number of gradients from a hook",
        lambda: backward_hooked(nn.ReLU(), (None, None)),
        lucid.UserError,
        "full backward hook: expected None or 1 gradients: got 2",
    ),
    ErrorCase(
        "Module: gradient from a hook",
        lambda: backward_hooked(nn.ReLU(), ("g",)),
        lucid.ArgumentTypeError,
        "full backward hook: gradient 0 must be a Tensor or None: got str",
    ),
    ErrorCase(
        "Module: gradient that is not there",
        lambda: backward_hooked(nn.Embedding(3, 2), f32(2)),
        lucid.UserError,
        "full backward hook: there is no gradient 0 to replace; return None for it",
    ),
    ErrorCase(
        "Module: pre-hook",
        lambda: badly_hooked(f32(2)),
        lucid.UserError,
        "forward pre-hook: with_kwargs=True expects None or (args, kwargs): got 3",
    ),
    ErrorCase(
        "Module: get_submodule",
        lambda: nn.Linear(2, 2).get_submodule("weight"),
        AttributeError,
        "`weight` is not a Module",
    ),
    ErrorCase(
        "Module: get_parameter",
        lambda: nn.Linear(2, 2).get_parameter("in_features"),
        AttributeError,
        "`in_features` is not a Parameter",
    ),
    ErrorCase(
        "Module: get_buffer",
        lambda: nn.Linear(2, 2).get_buffer("weight"),
        AttributeError,
        "`weight` is not a buffer of Linear",
    ),
    ErrorCase(
        "Module: train",
        lambda: nn.ReLU().train("yes"),
        lucid.UserError,
        "train: mode must be a bool: got str",
    ),
    ErrorCase(
        "load_state_dict: list",
        lambda: nn.ReLU().load_state_dict([]),
        lucid.ArgumentTypeError,
        "load_state_dict: expected a mapping: got list",
    ),
    ErrorCase(
        "load_state_dict: keys",
        lambda: nn.Linear(2, 2).load_state_dict({"weight": f32(3, 3), "other": f32(2)}),
        lucid.UserError,
        (
            "Error(s) in loading state_dict for Linear:\n\tUnexpected key(s) in state_dict: "
            '"other".\n\tMissing key(s) in state_dict: "bias".\n\tsize mismatch for weight: '
            "copying a param with shape (3, 3) from checkpoint, the shape in current model "
            "is (2, 2)."
        ),
    ),
    ErrorCase(
        "MultiheadAttention: heads",
        lambda: nn.MultiheadAttention(5, 2),
        lucid.UserError,
        "MultiheadAttention: embed_dim must be divisible by num_heads: got 5 and 2",
    ),
    ErrorCase(
        "MultiheadAttention: bias_kv",
        lambda: nn.MultiheadAttention(4, 2, add_bias_kv=True),
        lucid.UnsupportedError,
        "MultiheadAttention: add_bias_kv is not supported; leave it unset",
    ),
    ErrorCase(
        "Sequential: number",
        lambda: nn.Sequential(nn.ReLU()).append(3),
        lucid.ArgumentTypeError,
        "add_module: expected a Module or None for '1': got int",
    ),
    ErrorCase(
        "ModuleList: number",
        lambda: nn.ModuleList([3]),
        lucid.ArgumentTypeError,
        "add_module: expected a Module or None for '0': got int",
    ),
    ErrorCase(
        "ModuleList: index",
        lambda: nn.ModuleList([nn.ReLU()])[1],
        lucid.OutOfRangeError,
        "ModuleList: index out of range: got 1 for 1 entries",
    ),
    ErrorCase(
        "ParameterList: number",
        lambda: nn.ParameterList([3]),
        lucid.ArgumentTypeError,
        "ParameterList: expected a Tensor or Parameter: got int",
    ),
    ErrorCase(
        "Conv2d: groups",
        lambda: nn.Conv2d(2, 2, 3, groups=0),
        lucid.UserError,
        "Conv2d: groups must be a positive integer: got 0",
    ),
    ErrorCase(
        "Conv2d: channels",
        lambda: nn.Conv2d(3, 2, 3, groups=2),
        lucid.UserError,
        "Conv2d: in_channels must be divisible by groups: got 3 and 2",
    ),
    ErrorCase(
        "Conv2d: padding_mode",
        lambda: nn.Conv2d(2, 2, 3, padding_mode="mirror"),
        lucid.UserError,
        (
            "Conv2d: padding_mode must be one of ('zeros', 'reflect', 'replicate', "
            "'circular'): got 'mirror'"
        ),
    ),
    ErrorCase(
        "Conv2d: padding",
        lambda: nn.Conv2d(2, 2, 3, padding="all"),
        lucid.UserError,
        "Conv2d: padding must be 'same', 'valid' or ints: got 'all'",
    ),
    ErrorCase(
        "Conv2d: padding of strides",
        lambda: nn.Conv2d(2, 2, 3, stride=2, padding="same"),
        lucid.UserError,
        "Conv2d: padding='same' is not supported for strides: got (2, 2)",
    ),
    ErrorCase(
        "ConvTranspose2d: padding_mode",
        lambda: nn.ConvTranspose2d(2, 2, 3, padding_mode="reflect"),
        lucid.UserError,
        "ConvTranspose2d: only padding_mode='zeros' is defined: got 'reflect'",
    ),
    ErrorCase(
        "Bilinear: features",
        lambda: nn.Bilinear(0, 2, 2),
        lucid.UserError,
        "Bilinear: in1_features must be positive: got 0",
    ),
    ErrorCase(
        "BatchNorm2d: axes",
        lambda: nn.BatchNorm2d(3)(f32(2, 3)),
        lucid.ShapeError,
        "BatchNorm2d: expected 4D input: got shape (2, 3)",
    ),
    ErrorCase(
        "GroupNorm: groups",
        lambda: nn.GroupNorm(2, 3),
        lucid.UserError,
        "GroupNorm: num_channels must be divisible by num_groups: got 3 and 2",
    ),
    ErrorCase(
        "Embedding: padding_idx",
        lambda: nn.Embedding(3, 2, padding_idx=3),
        lucid.OutOfRangeError,
        "Embedding: padding_idx must be within num_embeddings: got 3 for 3",
    ),
    ErrorCase(
        "Embedding: weight",
        lambda: nn.Embedding(3, 2, _weight=f32(2, 2)),
        lucid.ShapeError,
        "Embedding: weight must have shape (3, 2): got (2, 2)",
    ),
    ErrorCase(
        "Embedding: from_pretrained",
        lambda: nn.Embedding.from_pretrained(f32(3)),
        lucid.ShapeError,
        "Embedding: embeddings must have 2 axes: got shape (3,)",
    ),
    ErrorCase(
        "TransformerEncoderLayer: activation",
        lambda: nn.TransformerEncoderLayer(4, 2, activation="tanh"),
        lucid.UserError,
        "Transformer: activation must be 'relu', 'gelu' or a callable: got 'tanh'",
    ),
    ErrorCase(
        "Linear: features",
        lambda: nn.Linear(3, 4)(f32(2, 5)),
        lucid.ShapeError,
        (
            "linear: features differ: input (2, 5) has 5, weight (4, 3) expects 3; the last "
            "axis of input must be in_features"
        ),
    ),
    ErrorCase(
        "Parameter: integers",
        lambda: nn.Parameter(i64(2)),
        lucid.DtypeError,
        "requires_grad_: only floating dtypes have gradients: got int64",
    ),
    ErrorCase(
        "Sequential: inserted number",
        lambda: nn.Sequential(nn.ReLU()).insert(0, 3),
        lucid.ArgumentTypeError,
        "Sequential: expected a Module: got int",
    ),
    ErrorCase(
        "weight_norm: no parameter",
        lambda: nn.utils.weight_norm(nn.ReLU()),
        lucid.UserError,
        "weight_norm: ReLU has no parameter 'weight'",
    ),
    ErrorCase(
        "weight_norm: twice",
        lambda: nn.utils.weight_norm(nn.utils.weight_norm(nn.Linear(2, 2))),
        lucid.UserError,
        "weight_norm: 'weight' is computed already; remove that first",
    ),
    ErrorCase(
        "weight_norm: dim",
        lambda: nn.utils.weight_norm(nn.Linear(2, 2), dim=2),
        lucid.OutOfRangeError,
        "weight_norm: dim out of range: got 2 for a weight of 2 axes",
    ),
    ErrorCase(
        "weight_norm: set",
        lambda: assign(nn.utils.weight_norm(nn.Linear(2, 2)), "weight", nn.Parameter(f32(2, 2))),
        lucid.UserError,
        "weight_norm: 'weight' is computed and cannot be set; call remove_weight_norm first",
    ),
    ErrorCase(
        "weight_norm: nothing to remove",
        lambda: nn.utils.remove_weight_norm(nn.Linear(2, 2)),
        lucid.UserError,
        "remove_weight_norm: Linear has no weight_norm of 'weight'",
    ),
    ErrorCase(
        "spectral_norm: rounds",
        lambda: nn.utils.spectral_norm(nn.Linear(2, 2), n_power_iterations=0),
        lucid.UserError,
        "spectral_norm: n_power_iterations must be positive: got 0",
    ),
]
