"""Utilities: data loading, checkpointing."""

from lucid.utils import checkpoint, data

__all__ = ["checkpoint", "data"]
