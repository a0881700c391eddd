"""Helpers for training: gradient clipping, parameters as one vector, normed weights, sequences."""

from lucid.nn.utils import parametrizations, parametrize, rnn
from lucid.nn.utils.clip import clip_grad_norm_, clip_grad_value_, get_total_norm
from lucid.nn.utils.convert import parameters_to_vector, vector_to_parameters
from lucid.nn.utils.normed import (
    remove_spectral_norm,
    remove_weight_norm,
    spectral_norm,
    weight_norm,
)

__all__ = [
    "clip_grad_norm_",
    "clip_grad_value_",
    "get_total_norm",
    "parameters_to_vector",
    "parametrizations",
    "parametrize",
    "remove_spectral_norm",
    "remove_weight_norm",
    "rnn",
    "spectral_norm",
    "vector_to_parameters",
    "weight_norm",
]
