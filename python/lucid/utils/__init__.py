"""Utilities: data loading."""

from lucid.utils import data

__all__ = ["data"]
