"""Rows of the table of errors, by the part of the package that refuses."""
