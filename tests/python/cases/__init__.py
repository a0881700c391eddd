"""Rows of the table of operations, by family."""
