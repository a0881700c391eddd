"""The programs that are measured against each other, one module each.

A module has `prepare(workload, mode)`, which returns a function that runs one whole step, waits
for it, and returns the loss (anything with `item()`); and `versions()`.
"""
