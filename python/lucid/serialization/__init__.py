"""Tensors in files: containers of our own, and safetensors. Nothing read is ever run."""

from lucid.serialization.archive import load, save
from lucid.serialization.safetensors import load_safetensors, save_safetensors

__all__ = ["load", "load_safetensors", "save", "save_safetensors"]
