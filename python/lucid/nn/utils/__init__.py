"""Helpers for training: gradient clipping, parameters as one vector, padded sequences."""

from lucid.nn.utils import rnn
from lucid.nn.utils.clip import clip_grad_norm_, clip_grad_value_, get_total_norm
from lucid.nn.utils.convert import parameters_to_vector, vector_to_parameters

__all__ = [
    "clip_grad_norm_",
    "clip_grad_value_",
    "get_total_norm",
    "parameters_to_vector",
    "rnn",
    "vector_to_parameters",
]
