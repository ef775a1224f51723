"""Comparison of all methods on the same data splits, with confidence intervals of the differences."""
